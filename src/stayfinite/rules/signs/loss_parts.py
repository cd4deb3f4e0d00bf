"""Loss terms in a log or an error: which one is non-finite, which one exploded."""

from __future__ import annotations

import math
import re
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line

LARGE_PART = 100.0
"""A term above this, and far above its usual value, exploded."""

VANISHED = 0.03
"""A loss over what it was, where it has come down to next to nothing."""

_PLAYER = lazy_regex(r"(?:err_?)?(?:[dg]|disc\w*|critic|gen|generator)(?:_\w+)?", re.IGNORECASE)
"""What the two of a GAN are called."""

_PART = lazy_regex(r"loss(?!.*(?:scale|weight))|(?:^|[/_])(?:nll|kl|mse|bce|ce|l1)(?:$|[/_])", re.IGNORECASE)

_PART_IN_ERROR = lazy_regex(
    r"['\"]?(\w*loss\w*)['\"]?\s*[:=]\s*tensor\(\s*(\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf)", re.IGNORECASE
)


def blown_up_part(facts: Facts) -> Line | None:
    """A finite but absurdly large loss term in a log line or an error."""
    for where, parts in _parts_by_line(facts):
        lost = any(not math.isfinite(value) for value in parts.values())
        large = {name: value for name, value in parts.items() if math.isfinite(value) and abs(value) >= LARGE_PART}
        if lost and large:
            name = max(large, key=lambda each: abs(large[each]))
            return Line(where, f"{name} is {large[name]:.6g} in the failing step")
    for run in facts.runs:
        for name, track in run.metrics.items():
            if not _is_part(name):
                continue
            finite = [abs(value) for value in track.values if math.isfinite(value)]
            if len(finite) >= 3 and max(finite) >= max(LARGE_PART, 50 * median(finite)):
                line = next(
                    at for value, at in zip(track.values, track.lines, strict=True) if abs(value) == max(finite)
                )
                return Line(run.where(line), f"{name} jumps to {max(finite):.6g} from about {median(finite):.4g}")
    return None


def lost_part(facts: Facts) -> Line | None:
    """``(text, where)`` if one term is non-finite and three or more others are normal."""
    for where, parts in _parts_by_line(facts):
        lost = [name for name, value in parts.items() if not math.isfinite(value)]
        usual = [name for name, value in parts.items() if math.isfinite(value) and abs(value) < LARGE_PART]
        if len(lost) == 1 and len(usual) >= 3:
            return Line(where, f"only {lost[0]} is NaN or inf; {len(usual)} other parts of the loss are normal")
    return None


def vanished_part(facts: Facts) -> Line | None:
    """A loss, or a part of one, that had come down to next to nothing when the run went bad.

    What saturates so far gives a probability of 0, a distance of 0, a variance of 0: its logarithm, root or quotient is
    not finite. Updates that are too large make a loss rise first.
    """
    for run in facts.runs:
        tracks = {name: track for name, track in run.metrics.items() if _is_part(name) or _PLAYER.fullmatch(name)}
        rows = {name: list(zip(track.values, track.lines, strict=True)) for name, track in tracks.items()}
        rows["loss"] = [(value, line) for _, value, line in run.column("loss")]
        lost = [line for row in rows.values() for value, line in row if not math.isfinite(value)]
        for name, row in rows.items() if lost else ():
            before = [value for value, line in row if line < min(lost)]
            if len(before) < 3 or not all(map(math.isfinite, before)):
                continue
            start, end = max(before[0], median(before)), before[-1]
            if 0 <= end <= VANISHED * start and start >= 0.1 and end <= 2 * min(before) + VANISHED**2:
                where = run.where(next(line for _, line in reversed(row) if line < min(lost)))
                return Line(where, f"{name} falls from {start:.3g} to {end:.3g} right before NaN or inf")
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
