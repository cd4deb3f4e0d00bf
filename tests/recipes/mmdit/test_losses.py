from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import default_collate

from stayfinite.recipes.diffusion.drawing import Noise
from stayfinite.recipes.diffusion.model import MMDiT, Shape
from stayfinite.recipes.diffusion.modes import Objective, Weights, masked_cross_entropy, smooth_bound

SHAPE = Shape(vocabulary=11, length=6, positions=4, channels=3, width=16, depth=2, heads=2)


def batch(mode: str, rows: int = 6, **more):
    noise = Noise(mode=mode, schedule="cosine")  # type: ignore[arg-type]
    mask = more.get("mask", torch.arange(6) < 4)
    generator = torch.Generator().manual_seed(7)
    latents = torch.randn(rows, 4, 3, generator=generator)
    ids = torch.randint(11, (rows, 6), generator=generator)
    return default_collate([noise.draw(ids[row], mask, latents[row], 100 + row, row) for row in range(rows)])


def objective(mode: str, model=None, **weights) -> Objective:
    torch.manual_seed(0)
    return Objective(
        model or MMDiT(SHAPE),
        mode=mode,
        schedule="cosine",
        prediction="v",
        weights=Weights(**weights),  # type: ignore[arg-type]
    )


def test_a_row_whose_mask_is_empty_counts_0_and_stays_attached():
    logits = torch.randn(2, 3, 5, requires_grad=True)
    counted = torch.tensor([[True, False, True], [False, False, False]])
    rows = masked_cross_entropy(logits, torch.zeros(2, 3, dtype=torch.int64), counted)
    rows.sum().backward()
    assert float(rows[1].detach()) == 0
    assert torch.isfinite(logits.grad).all()
    assert float(logits.grad[1].abs().sum()) == 0
    assert float(logits.grad[0, 0].abs().sum()) > 0


def test_the_mean_is_over_the_tokens_that_count():
    logits, ids = torch.randn(1, 4, 5), torch.randint(5, (1, 4))
    counted = torch.tensor([[True, True, False, False]])
    wanted = F.cross_entropy(logits[0, :2], ids[0, :2])
    assert torch.allclose(masked_cross_entropy(logits, ids, counted)[0], wanted)


def test_a_logit_beyond_all_bounds_at_a_place_that_does_not_count_does_no_harm():
    logits = torch.randn(1, 2, 5)
    logits[0, 1, 2] = float("inf")
    row = masked_cross_entropy(logits, torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[True, False]]))
    assert torch.isfinite(row).all()


def test_the_smooth_bound_is_the_loss_itself_up_to_half_of_it():
    losses = torch.linspace(0, 5, 20)
    assert torch.equal(smooth_bound(losses, 10.0), losses)
    assert torch.equal(smooth_bound(losses * 1e6, 0.0), losses * 1e6)


def test_the_smooth_bound_is_never_reached_and_never_without_a_gradient():
    losses = torch.tensor([6.0, 12.0, 1e3, 1e6], dtype=torch.float64, requires_grad=True)
    bounded = smooth_bound(losses, 10.0)
    bounded.sum().backward()
    assert (bounded < 10).all()
    assert (bounded.diff() > 0).all()
    assert (losses.grad > 0).all()
    hard = losses.detach().clone().requires_grad_()
    hard.clamp(max=10.0).sum().backward()
    assert float(hard.grad[1]) == 0  # what the bound is there to avoid


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_smooth_bound_hides_nothing_from_the_guard(value):
    assert not torch.isfinite(smooth_bound(torch.tensor([value]), 10.0)).any()


@pytest.mark.parametrize("mode", ["unconditional", "l2t", "t2l", "sequential", "random"])
def test_each_loss_is_told_apart_and_they_add_up(mode):
    told: dict[str, torch.Tensor] = {}
    torch.manual_seed(0)
    loss = Objective(
        MMDiT(SHAPE), mode=mode, schedule="linear", prediction="x0", weights=Weights(text=2.0, latent=0.5),
        latest=told.update,
    )(batch(mode))  # fmt: skip
    assert set(told) == {"l2t": {"text"}, "t2l": {"latent"}}.get(mode, {"text", "latent"})
    total = sum({"text": 2.0, "latent": 0.5}[name] * part for name, part in told.items())
    assert torch.allclose(loss, total)


@pytest.mark.parametrize("mode", ["random", "l2t"])
def test_parts_of_a_batch_have_the_gradient_of_the_whole(mode):
    whole = batch(mode)
    torch.manual_seed(0)
    model = MMDiT(SHAPE)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    compute = objective(mode, model)
    compute(whole).backward()
    wanted = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for start in (0, 2, 4):
        part = {name: item[start : start + 2] for name, item in whole.items()}
        (compute(part) / 3).backward()
    for parameter, expected in zip(model.parameters(), wanted, strict=True):
        if expected is not None:
            assert torch.allclose(parameter.grad, expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["l2t", "random"])
def test_texts_without_a_token_give_a_finite_loss_and_finite_gradients(mode):
    model = MMDiT(SHAPE)
    empty = batch(mode, mask=torch.zeros(6, dtype=torch.bool))
    loss = objective(mode, model)(empty)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def test_what_stands_at_padding_changes_nothing():
    torch.manual_seed(0)
    compute = objective("random")
    one = batch("random")
    other = one | {"ids": torch.where(one["mask"], one["ids"], 10)}
    assert torch.equal(compute(one), compute(other))
