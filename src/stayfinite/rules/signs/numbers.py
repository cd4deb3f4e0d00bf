"""Compare values of any kind as numbers."""

from __future__ import annotations

import math
from typing import Any

from stayfinite.rules.facts import Facts
from stayfinite.rules.known import number_in


def finite(value: Any) -> float | None:
    """The finite number that a value is or starts with; None otherwise."""
    number = number_in(value)
    return number if number is not None and math.isfinite(number) else None


def measured(facts: Facts, name: str) -> tuple[float, str] | None:
    """``(number, where)`` of a probe's fact, if it is a finite number."""
    seen = facts.seen(name)
    number = None if seen is None else finite(seen.value)
    return None if seen is None or number is None else (number, seen.where)


def finite_metric(facts: Facts, *names: str) -> list[tuple[float, str]]:
    """``(value, where)`` of the finite values of the first of these metrics that any log has."""
    return [(value, where) for value, where in facts.metric(*names) if math.isfinite(value)]
