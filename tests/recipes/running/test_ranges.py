from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from stayfinite.errors import UsageError
from stayfinite.recipes.running.ranges import check_numbers


@dataclass(frozen=True, kw_only=True)
class Settings:
    learning_rate: float = 1e-4
    length: int | None = None


def test_numbers_within_their_range_pass():
    check_numbers(Settings(), ("learning_rate", "length"), above=True)
    check_numbers(Settings(learning_rate=0.0), ("learning_rate",), above=False)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_others_are_refused_with_their_flag_and_the_default(value):
    with pytest.raises(UsageError, match=r"--learning-rate .*: expected more than 0\n  fix: the default is 0.0001"):
        check_numbers(Settings(learning_rate=value), ("learning_rate",), above=True)
