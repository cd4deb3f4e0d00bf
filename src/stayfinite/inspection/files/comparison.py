"""The differences between two plans, as data."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from stayfinite.rules.known import is_on, number_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A value on one side."""

    name: str
    value: Any
    where: str

    def to_json(self) -> dict[str, Any]:
        value = (
            self.value if isinstance(self.value, (bool, int, float, str, list, dict, type(None))) else str(self.value)
        )
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        return {"name": self.name, "value": value, "where": self.where}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that differs."""

    name: str
    left: Side | None
    """None if this side does not set it."""
    right: Side | None
    means: str = ""
    """Its effect on stability; empty if none."""

    @property
    def differs(self) -> bool:
        """Whether both sides set it to different values."""
        return self.left is not None and self.right is not None and not same_value(self.left.value, self.right.value)

    def to_json(self) -> dict[str, Any]:
        sides = {name: side.to_json() if side else None for name, side in (("left", self.left), ("right", self.right))}
        return {"name": self.name, **sides, "means": self.means}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Differences between two plans."""

    left: str
    right: str
    training: tuple[Difference, ...]
    """Set differently and relevant for stability, most important first."""
    other: tuple[Difference, ...]
    """Set differently, but not relevant for stability: paths, logging."""
    one_sided: tuple[Difference, ...]
    """Set by one side only; relevant for stability first."""
    equal: int

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.training or self.other or self.one_sided)

    def to_json(self) -> dict[str, Any]:
        parts = {name: [each.to_json() for each in getattr(self, name)] for name in ("training", "other", "one_sided")}
        return {"same": self.same, "left": self.left, "right": self.right, **parts, "equal": self.equal}


def same_value(left: Any, right: Any) -> bool:
    """Whether two values are equal, however written: `1e-4` and `"0.0001"`, `true` and `1`."""
    if isinstance(left, bool) or isinstance(right, bool):
        return is_on(left) is not None and is_on(left) == is_on(right)
    numbers = [
        number_in(each) if isinstance(each, (int, float)) or _whole_number(each) else None for each in (left, right)
    ]
    if None not in numbers:
        return numbers[0] == numbers[1] or all(math.isnan(each) for each in numbers if each is not None)
    return left == right or str(left).strip().lower() == str(right).strip().lower()


def _whole_number(value: Any) -> bool:
    return (
        isinstance(value, str)
        and re.fullmatch(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", value.strip(), re.IGNORECASE) is not None
    )
