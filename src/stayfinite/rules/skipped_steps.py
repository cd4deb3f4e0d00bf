"""What the skipped steps of a run show."""

from __future__ import annotations

from collections.abc import Sequence

from stayfinite.core.series import Message, Point, RunSeries
from stayfinite.rules.signs.nan_words import says_not_finite, without_empty_statistics

FEW = 3
"""Fewer skips prove nothing."""


def longest_skips(points: Sequence[Point]) -> int:
    """The largest number of skips in a row."""
    longest = current = 0
    for point in points:
        # A position without numbers between two skips (a progress bar) does not interrupt them.
        if point.skipped:
            current += 1
        elif point.loss is not None or point.grad_norm is not None:
            current = 0
        longest = max(longest, current)
    return longest


def never_updates(run: RunSeries) -> bool:
    """Whether every step was skipped; only if the log numbers its steps.

    Every rank may report its skips, so their count alone proves nothing: no two losses may follow each other without a
    skip in between.
    """
    if run.counted:
        return run.counted_none >= 2 and run.counted_none == run.counted
    between = longest = skips = 0
    for point in run.points:
        skips += point.skipped
        between = 0 if point.skipped else between + (point.loss is not None)
        longest = max(longest, between)
    logged = [point for point in run.points if point.loss is not None and not point.skipped]
    steps = sorted({point.step for point in logged if point.step is not None and point.step != point.epoch})
    if skips < FEW or longest > 1 or len(steps) < 2:
        return False
    span = steps[-1] - steps[0]
    # The first line covers as many steps as the others.
    return skips >= span + span / (len(steps) - 1) - 1


def of_steps_taken(run: RunSeries) -> Sequence[Message]:
    """The messages without those about NaN or inf that mean nothing: of skipped steps, of empty statistics."""
    messages = without_empty_statistics(run.messages)
    lines = [(point.line, point.skipped) for point in run.points]
    skips = [line for line, skipped in lines if skipped]
    ends = max((lines[-1][0] if lines else 0, *(max(each.line, each.last_line) for each in messages)))
    if not skips or ends <= skips[-1] + 1:
        return messages
    return [
        each
        for each in messages
        if each.count > len(skips) or max(each.line, each.last_line) > skips[-1] + 1 or not says_not_finite(each.text)
    ]
