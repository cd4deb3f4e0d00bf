"""Of many cases of one promise, those that `make test` meets; `make slow` meets the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick_ones(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """All cases in their order, for `parametrize`; all but the quick ones are marked as slow."""
    cases = list(cases)
    assert all(each in cases for each in quick), f"{quick} are not all among {cases}"
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in cases]
