"""Which logs in one directory are plainly different runs.

Two logs are, where both begin with the training, and their losses at the same steps have nothing to do with each other.
Logs of ranks, of training and evaluation, standard output and error, a second format and a resumed part are one run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries

ENOUGH = 3
"""Losses that make a log a run of its own."""
ALIKE = 0.05
"""How far two losses of one step lie apart at most in two logs of one run, relatively."""
APART = 0.2
"""How far they lie apart at least in those of two. A running average is between."""
RATES = 1.5
"""By which factor the highest learning rates of two runs differ at least."""
BEGINNING = 2.0
"""A log begins with the training where its first step is at most so many of its steps."""

_PART = lazy_regex(
    r"(?:rank|worker|node|gpu|proc(?:ess)?|host|shard|stdout|stderr)s?[-_.]?\d*|"
    r"(?<![a-z])(?:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test|dev|out|err|error|log)(?![a-z])|\d+|[-_.]+",
    re.IGNORECASE,
)
"""What the names of one run's logs may differ in."""
GENERAL = frozenset(
    {"", "plain", "csv", "json", "tensorboard", "table", "progress bar", "trainer state", "loss scaler"}
)
"""Kinds of logs that stand beside those of any framework."""


def separate_runs(runs: Sequence[RunSeries]) -> list[list[str]]:
    """The logs of each run, by their sources, where two of them are plainly different runs; else empty.

    Logs without losses of their own are in none: they may belong to any.
    """
    whole = [_Log(run) for run in runs if run.rank in (None, 0) and _begins(run)]
    if not any(one.differs(other) for one, other in combinations(whole, 2)):
        return []
    group = {log.source: [log.source] for log in whole}
    for one, other in combinations(whole, 2):
        if group[one.source] is not group[other.source] and one.belongs_to(other):
            group[one.source] += group[other.source]
            group |= dict.fromkeys(group[other.source], group[one.source])
    return list({id(each): each for each in group.values()}.values())


class _Log:
    """What is compared of a log."""

    def __init__(self, run: RunSeries) -> None:
        self.source, self.kind = run.source, run.kind
        self.name = _PART.sub("", Path(run.source).name)
        self.stem = Path(run.source).stem
        self.losses, self.rates = _curve(run), _curve(run, "lr")
        self.highest = max(self.rates.values(), default=0.0) if len(self.rates) >= ENOUGH else 0.0

    def differs(self, other: _Log) -> bool:
        """Whether the two are plainly of different runs."""
        if self.stem == other.stem or (self.name == other.name and not self._has_other_rates(other)):
            return False
        if self._has_other_rates(other):
            return not self._agrees(other)
        if self.kind != other.kind:
            return not GENERAL.intersection((self.kind, other.kind))
        rated = bool(self.highest and other.highest)
        return not rated and _lie_apart(self.losses, other.losses)

    def belongs_to(self, other: _Log) -> bool:
        """Whether the two are plainly of one run."""
        named_alike = self.stem == other.stem or self.name == other.name
        return not self.differs(other) and (named_alike or self._agrees(other))

    def _has_other_rates(self, other: _Log) -> bool:
        low, high = sorted((self.highest, other.highest))
        return low > 0 and high >= RATES * low

    def _agrees(self, other: _Log) -> bool:
        return _share(self.losses, other.losses, lambda one, two: _distance(one, two) <= ALIKE) > 0.5


def _lie_apart(first: Mapping[float, float], second: Mapping[float, float]) -> bool:
    return _share(first, second, lambda one, two: _distance(one, two) >= APART) > 0.5


def _share(first: Mapping[float, float], second: Mapping[float, float], holds: Callable[[float, float], bool]) -> float:
    """For which share of common steps it holds; 0 where they are too few."""
    common = first.keys() & second.keys()
    return sum(holds(first[each], second[each]) for each in common) / len(common) if len(common) >= ENOUGH else 0.0


def _begins(run: RunSeries) -> bool:
    steps = list(_curve(run))
    if len(steps) < ENOUGH:
        return False
    ahead = sorted(steps)[:2]
    return steps[0] == ahead[0] and steps[0] <= max(1.0, BEGINNING * (ahead[1] - ahead[0]))


def _curve(run: RunSeries, name: str = "loss") -> dict[float, float]:
    """The first value of each step, or of each epoch where no steps are counted."""
    found: dict[float, float] = {}
    for ordinal, point in enumerate(run.points):
        value: float | None = getattr(point, name)
        if value is not None:
            counted = point.step if point.step is not None else point.epoch
            found.setdefault(float(ordinal) if counted is None else counted, value)
    return found


def _distance(one: float, other: float) -> float:
    """Between two losses, relatively; a loss that is not finite lies far from one that is."""
    if not (math.isfinite(one) and math.isfinite(other)):
        return 0.0 if math.isfinite(one) == math.isfinite(other) else 1.0
    return abs(one - other) / max(abs(one), abs(other), 1e-9)
