from __future__ import annotations

import pytest
import torch

from stayfinite.recipes.images.losses import class_weights, classes_in_words, disagreement, ramp
from stayfinite.recipes.images.pairs import FIRST, SECOND, SIMILAR, SWAPPED, Pair

SWAP = torch.tensor(SWAPPED)


def test_answers_that_are_swapped_with_the_pair_do_not_disagree() -> None:
    asked = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert disagreement(torch.cat([asked, asked[:, SWAP]]), SWAP).abs().max() < 1e-6


def test_disagreement_is_the_symmetric_divergence_and_the_same_from_both_sides() -> None:
    asked, swapped = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    found = disagreement(torch.cat([asked, swapped]), SWAP)
    p, q = asked.softmax(-1), swapped.softmax(-1)[:, SWAP]
    expected = 0.5 * ((p * (p / q).log()).sum(-1) + (q * (q / p).log()).sum(-1))
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(found, disagreement(torch.cat([swapped, asked]), SWAP), atol=1e-6)


def test_always_answering_first_is_the_greatest_disagreement_and_stays_finite() -> None:
    sure = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    found = disagreement(torch.cat([sure, sure]), SWAP)
    found.sum().backward()
    assert found.isfinite().all()
    assert found.item() > 1
    assert sure.grad is not None
    assert sure.grad.isfinite().all()


def test_the_weight_of_consistency_rises_and_then_stays() -> None:
    assert [ramp(step, weight=0.5, over=4) for step in (0, 1, 2, 4, 100)] == [0.0, 0.125, 0.25, 0.5, 0.5]
    assert ramp(0, weight=0.5, over=0) == 0.5


def _pairs(*labels: int) -> list[Pair]:
    return [Pair(first=f"{number}a", second=f"{number}b", label=label) for number, label in enumerate(labels)]


def test_a_rare_class_weighs_more_and_the_swap_balances_first_and_second() -> None:
    weights = class_weights(_pairs(FIRST, FIRST, FIRST, SIMILAR), balanced=True)
    assert weights[FIRST] == weights[SECOND] == pytest.approx(8 / 9)
    assert weights[SIMILAR] == pytest.approx(4 / 3)
    assert class_weights(_pairs(FIRST, SIMILAR), balanced=False) == [1, 1, 1]


def test_a_class_that_no_pair_has_weighs_nothing_and_is_told() -> None:
    pairs = _pairs(FIRST, SECOND)
    weights = class_weights(pairs, balanced=True)
    assert weights == [1, 1, 0]
    assert "Similar none: never learned" in classes_in_words(pairs, weights)
