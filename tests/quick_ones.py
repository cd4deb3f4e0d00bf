"""Of many cases of one promise, those that `make test` meets; `make slow` meets the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def quick_ones(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """All cases in their order, for `parametrize`; all but the quick ones are marked as slow."""
    cases = list(cases)
    assert all(each in cases for each in quick), f"{quick} are not all among {cases}"
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in cases]


def diagonal(longest: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
    """The product of the axes, for `parametrize`; quick is one for each value of the longest, the others in turn."""
    cases = []
    for (number, first), *rest in product(enumerate(longest), *map(enumerate, others)):
        quick = all(place == number % len(axis) for (place, _), axis in zip(rest, others, strict=True))
        cases.append(pytest.param(first, *(each for _, each in rest), marks=() if quick else pytest.mark.slow))
    return cases
