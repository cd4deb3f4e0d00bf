"""A training whose only loss has a name of its own: `TD LOSS: 37.2`, `Mean training loss: 0.39`."""

from __future__ import annotations

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries
from stayfinite.readers.logs.names import is_loss_part

_ONE_OF_MANY = lazy_regex(
    r"(?:^|[_/])(?:d|g|disc\w*|gen\w*|real|fake|adv\w*|policy|value|actor|critic|pi|vf?|q\d?|entropy|kld?|aux|reg)[_/]|"
    r"_(?:d|g|real|fake|best)$|loss[_/]\d+$"
)
"""Losses of players, and terms that are not what is minimized."""


def with_lone_loss(run: RunSeries) -> RunSeries:
    """The same run with its only loss as its loss; unchanged if it has one, or several to choose from."""
    named = [name for name in run.metrics if "loss" in name and is_loss_part(name)]
    if len(named) != 1 or _ONE_OF_MANY.search(named[0]) or len(run.metrics[named[0]].values) < 2:
        return run
    if any(point.loss is not None or point.grad_norm is not None for point in run.points):
        return run
    track = run.metrics[named[0]]
    by_line = {point.line: point for point in run.points}
    for step, value, line in zip(track.steps, track.values, track.lines, strict=True):
        beside = by_line.get(line)
        by_line[line] = Point(
            line, step, value, None, *((beside.lr, beside.loss_scale, beside.epoch) if beside else (None, None, None))
        )
    other = run.with_points(by_line[line] for line in sorted(by_line))
    other.metrics = {name: each for name, each in run.metrics.items() if name != named[0]}
    return other
