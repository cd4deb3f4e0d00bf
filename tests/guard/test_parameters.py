"""Parameters of every kind: without gradients, sparse, tied, frozen, compiled, without a learning rate."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stayfinite import Policy
from tiny_training import (
    GATES,
    OPTIMIZERS,
    TinyNet,
    Training,
    batch,
    both_gates,
    changed,
    everything,
    fingerprint,
    guarded,
    loss_of,
)


@both_gates
def test_the_raw_norm_of_every_gradient_can_be_asked_for(policy):
    training = Training("AdamW-fused", policy=policy, max_norm=0.01)
    loss = training.loss()
    grads = torch.autograd.grad(loss, [*training.model.parameters()], retain_graph=True)
    training.guard.step(loss)
    training.guard.flush()
    expected = {
        name: grad.norm().item() for (name, _), grad in zip(training.model.named_parameters(), grads, strict=True)
    }
    assert training.guard.gradient_norms == pytest.approx(expected, rel=1e-5)


class TwoHeads(nn.Module):
    """Head ``b`` is used on odd batches only; ``unused`` never."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)
        self.unused = nn.Linear(8, 4)


@pytest.mark.parametrize(
    ("build", "policy"),
    [("AdamW-fused", "host"), ("AdamW-fused", "device"), ("Adagrad-fused", "device"), ("SGD-foreach", "host")],
)
def test_parameters_without_a_gradient_are_left_alone(build, policy):
    torch.manual_seed(0)
    model = TwoHeads()
    plain_model = copy.deepcopy(model)
    optimizer, plain = (OPTIMIZERS[build](net.parameters()) for net in (model, plain_model))
    guard = guarded(model, optimizer, max_norm=1.0, policy=GATES[policy])

    def loss(net: TwoHeads, number: int) -> torch.Tensor:
        x, y = batch(number)
        head = net.b if number % 2 else net.a
        return F.mse_loss(head(net.body(x)), y)

    # The step that would first give head b its moments is refused.
    guard.step(loss(model, 0))
    guard.step(loss(model, 1) * float("nan"))
    for number in range(2, 8):
        guard.step(loss(model, number))
    guard.flush()
    for number in (0, *range(2, 8)):
        loss(plain_model, number).backward()
        torch.nn.utils.clip_grad_norm_(plain_model.parameters(), 1.0)
        plain.step()
        plain.zero_grad()
    assert changed(everything(plain_model, plain), everything(model, optimizer)) == []
    assert model.unused.weight.grad is None


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 6, sparse=True)
        self.table.weight.data.normal_(generator=torch.Generator().manual_seed(1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (self.table(rows) - 1).square().sum()


@pytest.mark.parametrize("build", [torch.optim.SparseAdam, torch.optim.SGD], ids=["SparseAdam", "SGD"])
def test_sparse_gradients_are_measured_clipped_and_refused(build):
    model = Lookup()
    optimizer = build(model.parameters(), lr=0.01)
    guard = guarded(model, optimizer, max_norm=1.0, policy=Policy(sample_every=1))
    rows = torch.tensor([3, 3, 3, 7, 9])  # a row that occurs thrice adds up
    dense = torch.autograd.grad((torch.nn.functional.embedding(rows, w := model.table.weight) - 1).square().sum(), w)[0]
    before = model.table.weight.detach().clone()
    guard.step(model(rows))
    assert guard.decisions[0].signals.grad_norm == pytest.approx(float(dense.norm()), rel=1e-6)
    assert guard.decisions[0].action == "clip"
    moved = model.table.weight.detach() - before
    if build is torch.optim.SGD:
        torch.testing.assert_close(moved, -0.01 * dense / dense.norm())
    assert moved.abs().sum(dim=1).nonzero().flatten().tolist() == [3, 7, 9]
    state = everything(model, optimizer)
    guard.step(model(rows) * float("nan"))
    assert guard.decisions[-1].refused
    assert guard.decisions[-1].signals.bad_parameters == ("table.weight",)
    assert changed(state, everything(model, optimizer)) == []


@pytest.mark.parametrize("build", [torch.optim.SparseAdam, torch.optim.SGD], ids=["SparseAdam", "SGD"])
def test_sparse_gradients_are_taken_as_in_a_plain_loop_to_the_last_bit(build):
    (model, plain_model), generator = (Lookup(), Lookup()), torch.Generator().manual_seed(0)
    optimizer, plain = build(model.parameters(), lr=0.01), build(plain_model.parameters(), lr=0.01)
    guard = guarded(model, optimizer, max_norm=None, policy=Policy(sample_every=1))
    for _ in range(6):
        rows = torch.randint(0, 30, (200,), generator=generator)
        guard.step(model(rows))
        plain_model(rows).backward()
        plain.step()
        plain.zero_grad()
    assert not any(each.refused for each in guard.decisions)
    assert changed(everything(plain_model, plain), everything(model, optimizer)) == []


@both_gates
def test_tied_weights_are_measured_once(policy):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 10, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    guard = guarded(model, optimizer, policy=policy, max_norm=None)
    rows = torch.arange(10)
    loss = F.cross_entropy(model(rows), rows)
    expected = torch.autograd.grad(loss, model[0].weight, retain_graph=True)[0].norm()
    guard.step(loss)
    guard.step(F.cross_entropy(model(rows), rows) * float("nan"))
    guard.flush()
    assert guard.decisions[0].signals.grad_norm == pytest.approx(float(expected), rel=1e-6)
    assert (guard.decisions[1].signals.bad_count, guard.decisions[1].signals.parameters) == (1, 1)


@pytest.mark.parametrize("held", [True, False], ids=["held by the optimizer", "not held"])
def test_frozen_parameters_are_neither_needed_nor_moved(held):
    torch.manual_seed(0)
    model = TinyNet()
    model.up.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if held or p.requires_grad], weight_decay=0.5)
    guard = guarded(model, optimizer)
    before = fingerprint(up=model.up.state_dict())
    for number in range(3):
        guard.step(loss_of(model, number))
    assert guard.decisions[-1].signals.parameters == 4
    assert changed(before, fingerprint(up=model.up.state_dict())) == []


@both_gates
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_is_guarded_under_its_own_names(policy, backend):
    torch._dynamo.reset()
    training = Training("AdamW-fused", policy=policy, model=torch.compile(TinyNet(), backend=backend))
    before = training.settled(3)
    training.bad("nan-element")
    training.guard.flush()
    assert training.guard.decisions[-1].signals.bad_parameters == ("up.weight",)
    assert changed(before, training.state()) == []


def test_an_optimizer_without_a_learning_rate_can_be_guarded():
    class Halving(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad, alpha=0.5)

    model = TinyNet()
    guard = guarded(model, Halving(model.parameters()))
    guard.step(loss_of(model, 0))
    assert guard.decisions[-1].action in {"accept", "clip"}
    assert guard.decisions[-1].signals.lr is None
