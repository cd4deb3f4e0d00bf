"""Compare printed metrics with the record: impossible values, sums never reset, stuck metrics."""

from __future__ import annotations

import bisect
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import mean

from stayfinite.doctor.frames import is_users
from stayfinite.doctor.judges.course import ends, learned
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told, told

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)(?![\w])\s*(%?)", re.IGNORECASE)
SHARES = re.compile(r"acc(?:uracy)?\b|top.?[15]\b|precision|recall|\bf1|auc\b|\bm?iou|dice|\bcorrect\b", re.IGNORECASE)
LOSSES = re.compile(r"loss|cost|objective|\bmse|\bce\b|error", re.IGNORECASE)
FEWEST = 3
CLOSE = 0.02
LONGEST_NAME = 40
FELL = 0.5
"""Share the loss must have fallen before a metric is expected to move."""
FEWEST_STUCK, MANY_STUCK = 4, 6
"""Equal prints needed to call a metric stuck: at 0, and at any other value."""
PERCENT = re.compile(
    r"\b(?:100|1e2)(?:\.0*)?\s*[*/]|[*]=?\s*(?:100|1e2)(?:\.0*)?\b|\bmul_?\(\s*100|%%|:\.?\d*%|percent", re.IGNORECASE
)
"""Code that converts to percent."""


@dataclass(slots=True)
class Printed:
    """One number of a repeatedly printed line."""

    name: str
    percent: bool
    counts: bool = True
    """Whether it is always printed without a decimal point."""
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def judge(program: Program) -> Iterator[Told]:
    """Printed numbers that contradict their name or the loss."""
    series = read_printed(program.printed)
    yield from _impossible(program, series)
    yield from _never_reset(program, series)
    yield from _stuck(program, series)
    yield from _reward_falls(program, series)


def read_printed(lines: list[tuple[int, str]]) -> list[Printed]:
    """Printed numbers, grouped by their line's form, with the word before each."""
    found: dict[tuple[str, int], Printed] = {}
    for step, line in lines[:20_000]:
        if len(line) > 400:
            continue
        form = NUMBER.sub("#", line)
        end = 0
        for index, match in enumerate(NUMBER.finditer(line)):
            before = line[end : match.start()]
            end = match.end()
            text = match.group().strip().rstrip("%").strip()
            try:
                value = float(text)
            except ValueError:
                continue
            key = (form, index)
            if key not in found:
                if len(found) > 400:
                    continue
                found[key] = Printed(_name(before), bool(match.group(1)))
            found[key].counts &= "." not in text
            found[key].steps.append(step)
            found[key].values.append(value)
    return list(found.values())


def _name(before: str) -> str:
    """Name of a number: the last words before it."""
    words = re.split(r"[|,;\t]|\s{2,}", before.strip(" :=|,-()[]\t."))[-1]
    words = words.strip(" :=-()[]'\"").lower()[-LONGEST_NAME:]
    return f"{words})" if words.count("(") > words.count(")") else words


def _impossible(program: Program, series: list[Printed]) -> Iterator[Told]:
    for each in series:
        if not SHARES.search(each.name) or LOSSES.search(each.name):
            continue
        values = [value for value in each.values if math.isfinite(value)]
        if not values:
            continue
        largest = max(values)
        unit = "%" if each.percent else ""
        limit = 100.0 if each.percent or _in_percent(program) else 1.0
        counted = each.counts and not each.percent  # as in 57/64
        if not counted and largest > limit * 1.0005 and (limit == 100.0 or largest > 1.0005):
            place = next((p for p, (kind, _, _) in program.crossed.items() if kind == "comparison"), ("", 0))
            yield told(
                "metric-impossible",
                [f"The program printed \"{each.name} {largest:g}{unit}\"; the maximum is {limit:g}{unit}."],
                weight=2.0, place=place, where=each.name,
            )  # fmt: skip
            return


def _stuck(program: Program, series: list[Printed]) -> Iterator[Told]:
    """A metric printed repeatedly with one value while the loss falls far."""
    losses = program.main_loss()
    if program.bad is not None or not learned(losses, FELL):
        return
    for each in series:
        if not SHARES.search(each.name) or LOSSES.search(each.name) or len(set(each.steps)) < FEWEST_STUCK:
            continue
        value = each.values[0]
        if len(set(each.values)) == 1 and value not in (1.0, 100.0) and (value == 0 or len(each.values) >= MANY_STUCK):
            begin, end = ends(losses)
            yield told(
                "metric-stuck",
                [f"\"{each.name}\" was printed {len(each.values)} times and was always {value:g}.",
                 f"Meanwhile the loss fell from {begin:.4g} to {end:.4g}."],
                weight=1.9, where=each.name,
            )  # fmt: skip
            return


def _reward_falls(program: Program, series: list[Printed]) -> Iterator[Told]:
    """A reward that falls: the sign of the loss or the advantage is flipped."""
    if program.bad is not None or any(each.learns for each in program.loss_calls.values()):
        return
    for each in series:
        if not re.search(r"reward|return", each.name) or LOSSES.search(each.name) or len(set(each.steps)) < 6:
            continue
        third = len(each.values) // 3
        first, last = each.values[:third], each.values[-third:]
        if max(last) < min(first) and mean(first) - mean(last) > 0.5 * abs(mean(first)):
            yield told(
                "flipped-sign", [f"\"{each.name}\" fell from {mean(first):.4g} to {mean(last):.4g} during training."],
                weight=1.4, where=each.name, confidence=0.7, title="Training makes the reward smaller.",
                fix="minimize the negative: loss = -(log_prob * advantage).mean()",
            )  # fmt: skip
            return


@lru_cache(maxsize=8)
def _text_of(filename: str) -> str:
    try:
        return Path(filename).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _in_percent(program: Program) -> bool:
    """Whether the program's source computes percentages anywhere."""
    own = {place[0] for place in program.losses if place[0]}
    homes = tuple({str(_root_of(Path(name).resolve().parent)) for name in own})
    loaded = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    beside = {name for name in loaded if homes and name.startswith(homes) and is_users(name)}
    return any(PERCENT.search(_text_of(name)) for name in own | beside if name.endswith(".py"))


def _root_of(folder: Path) -> Path:
    """The directory that contains a package; the folder itself if it is not one."""
    while (folder / "__init__.py").exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def _never_reset(program: Program, series: list[Printed]) -> Iterator[Told]:
    course = program.main_loss()
    if len(course) < 6 or program.bad is not None:
        return
    sums, total = [0.0], 0.0
    for value in course.values:
        total += value if math.isfinite(value) else 0.0
        sums.append(total)
    for each in series:
        if not LOSSES.search(each.name) or len(each.values) < FEWEST:
            continue
        at_losses = (bisect.bisect_left(course.steps, step) for step in each.steps)  # losses seen before each print
        pairs = [(v, at) for v, at in zip(each.values, at_losses, strict=True) if at >= 1 and math.isfinite(v)]
        if len(pairs) < FEWEST or len({at for _, at in pairs}) < FEWEST:
            continue
        since = [sums[at] for _, at in pairs]
        ratios = [value / total for (value, _), total in zip(pairs, since, strict=True) if total]
        middle = sorted(ratios)[len(ratios) // 2] if ratios else 0.0
        if not ratios or middle <= 0 or any(abs(ratio / middle - 1) > CLOSE for ratio in ratios):
            continue
        last, first = pairs[-1][0], pairs[0][0]
        apart = [
            (b - a) / max(1, n - m)
            for a, b, m, n in zip(since, since[1:], [p[1] for p in pairs], [p[1] for p in pairs[1:]], strict=False)
        ]
        if last > 1.3 * first and apart and apart[-1] <= 1.2 * (since[0] / max(1, pairs[0][1])):
            yield told(
                "metric-not-reset",
                [(f"The printed \"{each.name}\" grows from {first:.4g} to {last:.4g}: "
                 "it is the sum of all losses since the first step."),
                 f"The per-batch loss went from {course.values[0]:.4g} to {course.values[-1]:.4g}."],
                weight=2.0, where=each.name, severity="error",
            )  # fmt: skip
            return
