"""Loss terms in a log or an error: which one is non-finite, which one exploded."""

from __future__ import annotations

import math
import re
from statistics import median

from stayfinite.rules.facts import Facts

LARGE_PART = 100.0
"""A term above this, and far above its usual value, exploded."""

_PART = re.compile(r"loss(?!.*(?:scale|weight))|(?:^|[/_])(?:nll|kl|mse|bce|ce|l1)(?:$|[/_])", re.IGNORECASE)

_PART_IN_ERROR = re.compile(
    r"['\"]?(\w*loss\w*)['\"]?\s*[:=]\s*tensor\(\s*(\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf)", re.IGNORECASE
)


def blown_up_part(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` of a finite but absurdly large loss term in a log line or an error."""
    for where, parts in _parts_by_line(facts):
        lost = any(not math.isfinite(value) for value in parts.values())
        large = {name: value for name, value in parts.items() if math.isfinite(value) and abs(value) >= LARGE_PART}
        if lost and large:
            name = max(large, key=lambda each: abs(large[each]))
            return f"{name} is {large[name]:.6g} in the failing step", where
    for run in facts.runs:
        for name, track in run.metrics.items():
            if not _is_part(name):
                continue
            finite = [abs(value) for value in track.values if math.isfinite(value)]
            if len(finite) >= 3 and max(finite) >= max(LARGE_PART, 50 * median(finite)):
                line = next(
                    at for value, at in zip(track.values, track.lines, strict=True) if abs(value) == max(finite)
                )
                return f"{name} jumps to {max(finite):.6g} from about {median(finite):.4g}", run.where(line)
    return None


def lost_part(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` if one term is non-finite and three or more others are normal."""
    for where, parts in _parts_by_line(facts):
        lost = [name for name, value in parts.items() if not math.isfinite(value)]
        usual = [name for name, value in parts.items() if math.isfinite(value) and abs(value) < LARGE_PART]
        if len(lost) == 1 and len(usual) >= 3:
            return f"only {lost[0]} is NaN or inf; {len(usual)} other parts of the loss are normal", where
    return None


def _is_part(name: str) -> bool:
    return _PART.search(name) is not None and re.search(r"eval|val|test|dev", name) is None


def _parts_by_line(facts: Facts) -> list[tuple[str, dict[str, float]]]:
    """The loss terms of each line that has several, and those in error messages."""
    lines: list[tuple[str, dict[str, float]]] = []
    for run in facts.runs:
        by_line: dict[int, dict[str, float]] = {}
        for name, track in run.metrics.items():
            if _is_part(name):
                for value, line in zip(track.values, track.lines, strict=True):
                    by_line.setdefault(line, {})[name] = value
        lines.extend((run.where(line), parts) for line, parts in sorted(by_line.items()) if len(parts) > 1)
    lines.extend(
        (message.where, {name: float(value) for name, value in _PART_IN_ERROR.findall(message.text)})
        for message in facts.messages
        if "tensor(" in message.text
    )
    return lines
