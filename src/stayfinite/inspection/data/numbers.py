"""Numeric columns: non-finite values, constants, ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stayfinite.inspection.data.places import Tally
from stayfinite.inspection.data.values import as_number


@dataclass(slots=True)
class Numbers:
    """Statistics of one column."""

    count: int = 0
    smallest: float = math.inf
    largest: float = -math.inf
    not_finite: Tally = field(default_factory=Tally)
    """Explicit NaN or infinity."""
    gaps: Tally = field(default_factory=Tally)
    """Empty cells and placeholders."""
    words: Tally = field(default_factory=Tally)
    """Non-numeric text."""

    def take(self, first: int, values: Sequence[Any]) -> None:
        """Add values; ``first`` is the number of the first row."""
        try:
            numbers = list(map(float, values))
            if all(map(math.isfinite, numbers)):
                self._admit(numbers)
                return
        except (TypeError, ValueError, OverflowError):
            pass
        good = []
        for row, value in enumerate(values, first):
            number = as_number(value)
            if number is None:
                self.words.add(row)
            elif math.isfinite(number):
                good.append(number)
            elif math.isinf(number) or isinstance(value, float) or str(value).strip().lower().lstrip("+-") == "nan":
                self.not_finite.add(row)
            else:
                self.gaps.add(row)
        self._admit(good)

    def _admit(self, numbers: Sequence[float]) -> None:
        if numbers:
            self.count += len(numbers)
            self.smallest = min(self.smallest, *numbers)
            self.largest = max(self.largest, *numbers)

    @property
    def constant(self) -> bool:
        """Whether many rows share one value."""
        return self.count >= 20 and self.smallest == self.largest and not self.words.count
