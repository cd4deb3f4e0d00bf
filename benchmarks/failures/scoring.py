"""Counts: from results to a score for each tool, part and split."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.failures.cases import Result

TIMED = "programs"
"""The part whose time is compared with that of the program alone."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """How one tool did on one part of one split."""

    faulty: int
    detected: int
    right: int
    among: int
    """A right cause among the first three."""
    fixed: int
    healthy: int
    alarms: int
    failed: int
    """Cases that it gave no answer to; they count as missed."""
    seconds: float
    """Processor time of the median case."""
    cost: float | None
    """Median over healthy programs of processor time against the program alone."""


def score(results: Iterable[Result], plain: Mapping[str, float]) -> Score:
    """The score of results of one tool, part and split.

    Arguments:
        results: one for each case.
        plain: by name the seconds of healthy programs alone. Faulty ones are not timed: a tool that stops a program at
            once would look cheap.
    """
    results = list(results)
    faulty = [each for each in results if not each.case.healthy]
    healthy = [each for each in results if each.case.healthy]
    ratios = [
        each.seconds / plain[each.case.name]
        for each in healthy
        if each.case.part == TIMED and not each.error and plain.get(each.case.name)
    ]
    return Score(
        faulty=len(faulty),
        detected=sum(each.answer.alarmed for each in faulty),
        right=sum(each.right for each in faulty),
        among=sum(each.among for each in faulty),
        fixed=sum(each.answer.fixed for each in faulty),
        healthy=len(healthy),
        alarms=sum(each.answer.alarmed for each in healthy),
        failed=sum(bool(each.error) for each in results),
        seconds=statistics.median(each.seconds for each in results) if results else 0.0,
        cost=statistics.median(ratios) if ratios else None,
    )
