"""Lost updates: what 16-bit weights round away, and what each fix saves, on the same steps."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from stayfinite.errors import UsageError
from stayfinite.precision.formats import BF16, FP16
from stayfinite.precision.lost_updates import lost_updates, rounded_by_chance
from stayfinite.report.precision import updates_in_a_line


def training(lr: float, *, steps: int = 40):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    teacher = torch.randn(16, 1)
    batches = [(x := torch.randn(32, 16), x @ teacher) for _ in range(steps)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    return model, optimizer, batches, lambda batch: (model(batch[0]) - batch[1]).square().mean()


def test_a_small_rate_is_rounded_away_in_bf16_and_each_fix_saves_it():
    found = lost_updates(*training(2e-5))
    nearest, chance = found.way("nearest"), found.way("stochastic rounding")
    kahan, copied = found.way("Kahan sum"), found.way("fp32 copy")
    assert nearest.rounded_away > 0.8
    assert nearest.error > 0.5
    assert copied.rounded_away < 0.05
    assert copied.error < 0.2
    assert kahan.error < 0.3
    assert kahan.cosine > 0.95
    assert chance.cosine > nearest.cosine
    assert [each.bytes for each in found.ways] == [2, 2, 4, 6]
    assert "Keep them in fp32 under autocast" in updates_in_a_line(found.to_json())


def test_a_large_rate_loses_little_in_any_way():
    found = lost_updates(*training(2e-2))
    assert found.way("nearest").rounded_away < 0.1
    assert updates_in_a_line(found.to_json()).endswith("Training works.")
    assert found.way("nearest").cosine > 0.95
    assert all(each.loss == pytest.approx(found.fp32_loss, rel=0.2) for each in found.ways)


def test_fp16_weights_lose_less_than_bf16_ones():
    assert (
        lost_updates(*training(2e-5), format="fp16").way("nearest").rounded_away
        < lost_updates(*training(2e-5)).way("nearest").rounded_away
    )


def test_model_optimizer_and_random_numbers_are_as_before():
    model, optimizer, batches, forward = training(1e-3, steps=3)
    before, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = lost_updates(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), batches, forward)
    assert found.steps == 3
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.dtype is torch.float32 and p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), generator)
    assert not optimizer.state


@pytest.mark.parametrize("stored", [BF16, FP16])
def test_rounding_by_chance_gives_a_neighbour_and_the_value_on_average(stored):
    values = torch.tensor([1.003, -0.3337, 1e-5, 0.0, 2.0]).repeat(20000, 1)
    rounded = rounded_by_chance(values, torch.rand(values.shape, generator=torch.Generator().manual_seed(0)), stored)
    assert torch.equal(rounded, stored.rounded(rounded))
    assert rounded.mean(0) == pytest.approx(values[0], rel=1e-3)
    assert torch.equal(rounded[:, 4], values[:, 4])


def test_a_format_that_loses_nothing_is_refused():
    with pytest.raises(UsageError, match="bf16"):
        lost_updates(*training(1e-3, steps=1), format="fp32")
