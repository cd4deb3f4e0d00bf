from __future__ import annotations

import math

import torch

from stayfinite.recipes.images.evaluating import score
from stayfinite.recipes.images.pairs import FIRST, SECOND, SIMILAR, SWAPPED

SURE = 10 * torch.eye(3)


def _asked(answers: list[tuple[int, int]], labels: list[int]):
    logits = torch.stack([torch.stack([SURE[one], SURE[two]]) for one, two in answers])
    return score(logits, torch.tensor([[label, SWAPPED[label]] for label in labels]))


def test_right_answers_in_both_orders_are_right_and_consistent() -> None:
    found = _asked([(FIRST, SECOND), (SIMILAR, SIMILAR)], [FIRST, SIMILAR])
    assert found.accuracy == found.swap_consistency == found.balanced == 1
    assert found.confusion == [[1, 0, 0], [0, 1, 0], [0, 0, 2]]


def test_always_answering_first_is_half_right_and_never_consistent() -> None:
    found = _asked([(FIRST, FIRST), (FIRST, FIRST)], [FIRST, SECOND])
    assert found.accuracy == 0.5
    assert found.swap_consistency == 0
    assert found.per_class["First"] == 1
    assert found.per_class["Second"] == 0
    assert math.isnan(found.per_class["Similar"])
    assert found.balanced == 0.5


def test_a_wrong_answer_may_be_consistent() -> None:
    found = _asked([(SECOND, FIRST)], [FIRST])
    assert (found.accuracy, found.swap_consistency) == (0, 1)


def test_an_answer_that_is_not_a_number_is_a_miss_and_agrees_with_nothing() -> None:
    logits = torch.full((2, 2, 3), float("nan"))
    found = score(logits, torch.tensor([[FIRST, SECOND], [SIMILAR, SIMILAR]]))
    assert (found.accuracy, found.swap_consistency) == (0, 0)
    assert sum(map(sum, found.confusion)) == 0
