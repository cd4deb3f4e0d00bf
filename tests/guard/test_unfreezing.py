"""Which parameters are trained may change in mid-training, and the guard sees every one of them."""

from __future__ import annotations

import pytest
import torch

from stayfinite import Guard, OptimizerError, Policy
from tiny_training import Lines, TinyNet, both_gates, changed, fingerprint, loss_of, planted


def with_frozen_first_layer(policy: Policy, *, held: bool):
    torch.manual_seed(0)
    model = TinyNet()
    model.up.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if held or p.requires_grad], lr=1e-3, fused=True)
    guard = Guard(model, optimizer, policy=policy, console=Lines())
    for number in range(3):
        guard.step(loss_of(model, number))
    return model, optimizer, guard


def refuses_a_bad_gradient_of(parameter, name, model, guard) -> bool:
    guard.flush()
    before = fingerprint(model=model.state_dict())
    hook = parameter.register_hook(lambda grad: grad * float("nan"))
    guard.step(loss_of(model))
    hook.remove()
    guard.flush()
    assert guard.decisions[-1].signals.bad_parameters == (name,)
    return changed(before, fingerprint(model=model.state_dict())) == []


@both_gates
def test_a_layer_that_is_thawed_is_guarded_from_its_first_step(policy):
    model, _, guard = with_frozen_first_layer(policy, held=True)
    model.up.requires_grad_(True)
    assert refuses_a_bad_gradient_of(model.up.bias, "up.bias", model, guard)
    guard.step(loss_of(model))
    guard.flush()
    assert guard.decisions[-1].signals.parameters == 6
    assert not guard.decisions[-1].refused


@both_gates
def test_a_group_that_is_added_is_guarded_from_its_first_step(policy):
    model, optimizer, guard = with_frozen_first_layer(policy, held=False)
    model.up.requires_grad_(True)
    optimizer.add_param_group({"params": [*model.up.parameters()], "lr": 1e-4})
    assert refuses_a_bad_gradient_of(model.up.weight, "up.weight", model, guard)
    before = model.up.weight.detach().clone()
    guard.step(loss_of(model))
    guard.flush()
    assert not torch.equal(before, model.up.weight)


@both_gates
def test_a_layer_that_is_thawed_while_as_many_others_are_frozen_is_guarded(policy):
    model, _, guard = with_frozen_first_layer(policy, held=True)
    model.up.requires_grad_(True)
    model.down.requires_grad_(False)
    assert refuses_a_bad_gradient_of(model.up.weight, "up.weight", model, guard)


@both_gates
def test_a_layer_that_is_frozen_stands_still_from_then_on(policy):
    model, _, guard = with_frozen_first_layer(policy, held=True)
    model.norm.requires_grad_(False)
    before = fingerprint(norm=model.norm.state_dict())
    guard.step(loss_of(model))
    with planted("last-parameter", model):
        guard.step(loss_of(model))
    guard.flush()
    assert guard.decisions[-1].signals.bad_parameters == ("down.bias",)
    assert guard.decisions[-1].signals.parameters == 2
    assert changed(before, fingerprint(norm=model.norm.state_dict())) == []


def test_thawing_what_the_optimizer_does_not_hold_is_said_and_leaves_no_gradient_behind():
    model, optimizer, guard = with_frozen_first_layer(Policy(), held=False)
    model.up.requires_grad_(True)
    optimizer.add_param_group({"params": [model.up.weight]})
    before = fingerprint(model=model.state_dict())
    with pytest.raises(OptimizerError, match="up.bias"):
        guard.step(loss_of(model))
    assert changed(before, fingerprint(model=model.state_dict())) == []
    assert all(p.grad is None for group in optimizer.param_groups for p in group["params"])
    optimizer.add_param_group({"params": [model.up.bias]})
    guard.step(loss_of(model))
    assert guard.decisions[-1].signals.loss == pytest.approx(loss_of(model).item(), rel=0.2)
