"""Wrong use is a clear error with the remedy in it, and changes nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from stayfinite import (
    Guard,
    ModelError,
    OptimizerError,
    Policy,
    PolicyError,
    UsageError,
)
from tiny_training import DEVICE, Lines, TinyNet, Training, batch, changed, everything, loss_of


def refused(model, optimizer, *args, **settings) -> str:
    """The text of the error that building this guard gives; nothing may have changed."""
    before = everything(model, optimizer) if isinstance(optimizer, torch.optim.Optimizer) else None
    with pytest.raises(UsageError) as caught:
        Guard(model, optimizer, *args, **settings)
    assert before is None or changed(before, everything(model, optimizer)) == []
    assert caught.value.fix
    assert f"fix: {caught.value.fix}" in str(caught.value)
    refused.kind = type(caught.value)
    return str(caught.value)


def test_a_model_without_trainable_parameters():
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters())
    model.requires_grad_(False)
    assert "TinyNet has no trainable parameter" in (text := refused(model, optimizer))
    assert "requires_grad_(True)" in text
    assert refused.kind is ModelError
    other = torch.optim.AdamW(TinyNet().parameters())
    assert "Tanh has no trainable parameter" in refused(nn.Tanh(), other)


def test_a_model_without_values_is_refused_in_words_and_one_that_was_filled_is_guarded():
    with torch.device("meta"):
        model = TinyNet()
    with pytest.raises(ModelError, match="6 of 6 parameters are on the meta device") as raised:
        Guard(model, torch.optim.AdamW(model.parameters()))
    assert "to_empty" in raised.value.fix
    model = model.to_empty(device="cpu")
    model.load_state_dict(TinyNet().state_dict())
    with Guard(model, torch.optim.AdamW(model.parameters()), console=Lines()) as guard:
        guard.step(loss_of(model))
    assert not guard.decisions[-1].refused


def test_an_optimizer_that_misses_parameters_is_told_which():
    model = TinyNet()
    text = refused(model, torch.optim.AdamW(model.up.parameters()))
    assert refused.kind is OptimizerError
    assert "lacks 4 of 6 trainable parameters: norm.weight, norm.bias, down.weight, down.bias" in text
    text = refused(model, torch.optim.AdamW(TinyNet().parameters()))
    assert "6 of 6 trainable" in text
    assert "and 1 more" in text


@pytest.mark.parametrize("max_norm", [0, 0.0, -1.0, math.nan, True, "1.0", torch.tensor(1.0)])
def test_a_max_norm_that_is_not_positive(max_norm):
    model = TinyNet()
    text = refused(model, torch.optim.AdamW(model.parameters()), max_norm=max_norm)
    assert refused.kind is PolicyError
    assert "expected a number above 0, or None" in text


@pytest.mark.parametrize("max_norm", [None, 1, 0.1, math.inf])
def test_a_max_norm_that_is_positive_or_none(max_norm):
    training = Training(max_norm=max_norm)
    training.good(2)
    assert not training.guard.decisions[-1].refused


def test_an_optimizer_that_needs_a_closure():
    model = TinyNet()
    text = refused(model, torch.optim.LBFGS(model.parameters()))
    assert refused.kind is OptimizerError
    assert "LBFGS re-evaluates the loss in its step" in text
    assert "torch.optim.AdamW" in text


def test_a_user_written_optimizer_that_needs_a_closure():
    class Needy(torch.optim.SGD):
        def step(self, closure):
            return closure()

    model = TinyNet()
    assert "Needy re-evaluates the loss" in refused(model, Needy(model.parameters()))


@pytest.mark.parametrize("thing", [None, "adamw", torch.optim.AdamW, TinyNet().parameters()])
def test_something_that_is_no_optimizer(thing):
    assert "expected a torch optimizer" in refused(TinyNet(), thing)
    assert refused.kind is OptimizerError


def test_a_scheduler_that_needs_a_metric():
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters())
    text = refused(model, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
    assert "call scheduler.step(metric) yourself" in text


def test_a_scheduler_of_another_optimizer():
    model = TinyNet()
    optimizer, other = (torch.optim.AdamW(model.parameters()) for _ in range(2))
    text = refused(model, optimizer, torch.optim.lr_scheduler.StepLR(other, 1))
    assert "the scheduler drives another optimizer" in text


def test_float16_weights_under_a_scaler():
    model = TinyNet().half()
    scaler = torch.amp.GradScaler("cpu")
    text = refused(model, torch.optim.AdamW(model.parameters()), scaler=scaler)
    assert refused.kind is OptimizerError
    assert "6 trainable parameters are float16, first up.weight" in text
    assert "float32" in text


def test_a_scaler_that_is_switched_off_is_as_good_as_none():
    model = TinyNet()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    guard = Guard(model, torch.optim.AdamW(model.parameters()), scaler=scaler, console=Lines())
    guard.step(model(batch(1)[0]).square().mean())
    assert guard.decisions[0].signals.loss_scale is None


@pytest.mark.parametrize(
    "build",
    [torch.optim.RMSprop, lambda params: torch.optim.AdamW(params, foreach=True)],
    ids=["no fused kernel", "not fused"],
)
def test_a_device_gate_for_an_optimizer_that_takes_no_flag(build):
    model = TinyNet()
    text = refused(model, build(model.parameters()), policy=DEVICE)
    assert refused.kind is OptimizerError
    assert "reads no flag on the device" in text
    assert "fused=True" in text


def test_a_subclass_with_a_step_of_its_own_is_not_trusted_with_the_flag():
    class Mine(torch.optim.AdamW):
        def step(self, closure=None):
            return super().step(closure)

    model = TinyNet()
    assert "Mine as configured reads no flag" in refused(model, Mine(model.parameters(), fused=True), policy=DEVICE)


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "careful"}, {"gate": "front"}, {"window": 3}, {"window": 8.0}, {"warmup": 1}, {"warmup": 200},
        {"sigmas": 0}, {"sigmas": math.nan}, {"max_vetoes": -1}, {"max_vetoes_in_a_row": None}, {"sample_every": -1},
        {"silent_share": 1.5}, {"warmup_widening": 0.5}, {"level_change_after": 0}, {"scale_search": True},
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_outside_its_range(settings):
    with pytest.raises(PolicyError) as caught:
        Policy(**settings)
    name, value = next(iter(settings.items()))
    assert f"Policy({name}={value!r}): expected" in str(caught.value)
