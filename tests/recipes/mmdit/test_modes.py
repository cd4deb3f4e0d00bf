from __future__ import annotations

import pytest
import torch
from torch.utils.data import default_collate

from stayfinite.errors import StateError, TrainingStopped
from stayfinite.recipes.diffusion.drawing import Noise
from stayfinite.recipes.diffusion.model import MMDiT, Shape
from stayfinite.recipes.diffusion.modes import Frozen, Objective, Weights, to_freeze

SHAPE = Shape(vocabulary=11, length=6, positions=4, channels=3, width=16, depth=2, heads=2)


def model() -> MMDiT:
    torch.manual_seed(0)
    built = MMDiT(SHAPE)
    for parameter in built.parameters():  # gates that begin at 0 would hide who gets a gradient
        torch.nn.init.normal_(parameter, std=0.2)
    return built


def loss_of(built: MMDiT, mode: str) -> torch.Tensor:
    noise = Noise(mode=mode, schedule="cosine")  # type: ignore[arg-type]
    rows = [
        noise.draw(torch.arange(6), torch.ones(6, dtype=torch.bool), torch.randn(4, 3), seed, seed) for seed in range(6)
    ]
    compute = Objective(built, mode=mode, schedule="cosine", prediction="v", weights=Weights())  # type: ignore[arg-type]
    return compute(default_collate(rows))


@pytest.mark.parametrize("mode", ["l2t", "t2l"])
def test_exactly_what_no_gradient_reaches_is_frozen(mode):
    built = model()
    loss_of(built, mode).backward()
    without = {name for name, p in built.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)}
    assert without == set(to_freeze(built, mode, "unreached"))


@pytest.mark.parametrize("mode", ["unconditional", "sequential", "random"])
@pytest.mark.parametrize("freeze", ["unreached", "stream"])
def test_the_other_modes_freeze_nothing_and_reach_everything(mode, freeze):
    built = model()
    assert to_freeze(built, mode, freeze) == []
    loss_of(built, mode).backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in built.parameters())


def test_a_stream_is_frozen_whole_and_the_other_one_not_at_all():
    built = model()
    Frozen(built, to_freeze(built, "l2t", "stream"))
    for name, parameter in built.named_parameters():
        assert parameter.requires_grad == ("latent" not in name), name
    loss_of(built, "l2t").backward()
    assert all(p.grad is None for name, p in built.named_parameters() if "latent" in name)


def test_what_should_be_frozen_and_is_trained_is_found():
    built = model()
    frozen = Frozen(built, to_freeze(built, "t2l", "unreached"))
    frozen.check(1)
    built.text_out.say.weight.requires_grad_(True)
    with pytest.raises(StateError, match="text_out.say.weight is trained"):
        frozen.check(2)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weight", lambda layer: layer.weight[3, 1].add_(1e-6)),
        ("bias", lambda layer: layer.bias[:2].copy_(layer.bias[:2].flip(0))),
    ],
)
def test_a_frozen_parameter_that_changes_is_found_and_so_are_two_numbers_that_change_places(name, change):
    built = model()
    frozen = Frozen(built, to_freeze(built, "l2t", "stream"))
    with torch.no_grad():
        change(built.latent_in)
    with pytest.raises(TrainingStopped, match=f"changed by step 7: latent_in.{name}"):
        frozen.check(7)


def test_steps_of_an_optimizer_leave_what_is_frozen_alone():
    built = model()
    frozen = Frozen(built, to_freeze(built, "l2t", "stream"))
    optimizer = torch.optim.AdamW([p for p in built.parameters() if p.requires_grad], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        loss_of(built, "l2t").backward()
        optimizer.step()
    frozen.check(3)
