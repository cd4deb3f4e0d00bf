"""The training loss of a log that gives it a name of its own: `TD LOSS: 37.2`, `obj -> 0.39`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import is_evaluation, is_loss_part, means_loss
from stayfinite.core.series import Point, RunSeries, Track

_ONE_OF_MANY = lazy_regex(
    r"(?:^|[_/])(?:d|g|disc\w*|gen\w*|real|fake|adv\w*|policy|value|actor|critic|pi|vf?|q\d?|entropy|kld?|aux|reg)[_/]|"
    r"_(?:d|g|real|fake|best)$|loss[_/]\d+$"
)
"""Losses of players, and terms that are not what is minimized."""
_ELSE = lazy_regex(
    r"acc|bleu|rouge|f1|iou|\bmap\b|auc|reward|return|score|recall|precision|psnr|ssim|r2|norm|grad|lr|rate|kl|entropy|"
    r"scale|temp|time|step|epoch|speed|samples|fps|throughput|per_sec|elapsed|\beta\b|mem|^column_\d+$"
)
"""Numbers that are no loss, whatever they do."""
FEW = 5
"""Values from which on numbers tell what they are."""
NEAR = 0.02
"""How far a total may be from the sum of its parts, as printed."""


def with_lone_loss(run: RunSeries) -> RunSeries:
    """The same run with one of its metrics as its loss; unchanged if it has a loss already or none can be told."""
    if any(point.loss is not None for point in run.points):
        return run
    name = _loss_among(run.metrics)
    if not name:
        return run
    track = run.metrics[name]
    by_line = {point.line: point for point in run.points}
    for step, value, line in zip(track.steps, track.values, track.lines, strict=True):
        beside = by_line.get(line)
        rest = (beside.grad_norm, beside.lr, beside.loss_scale, beside.epoch) if beside else (None, None, None, None)
        by_line[line] = Point(line, step if beside is None or beside.step is None else beside.step, value, *rest)
    other = run.with_points(by_line[line] for line in sorted(by_line))
    other.loss_name = name
    other.metrics = {each: kept for each, kept in run.metrics.items() if each != name}
    return other


def _loss_among(metrics: Mapping[str, Track]) -> str:
    """The name of the training loss, or ""."""
    trained = {name: track.values for name, track in metrics.items() if not is_evaluation(name) and track.values}
    named = [name for name in trained if "loss" in name and is_loss_part(name)]
    if len(named) == 1 and not _ONE_OF_MANY.search(named[0]) and len(trained[named[0]]) >= 2:
        return named[0]
    others = {name: values for name, values in trained.items() if not _ELSE.search(name)}
    if total := _total({name: trained[name] for name in named} if named else others):
        return total
    meant = [name for name in trained if means_loss(name) and len(trained[name]) >= FEW]
    if len(meant) == 1:
        return meant[0]
    lone = next(iter(others), "") if len(others) == 1 and not named else ""
    return lone if lone and falls_at_first(trained[lone]) else ""


def _total(columns: Mapping[str, Sequence[float]]) -> str:
    """The column that is the sum of at least two others on every line."""
    rows = list(zip(*columns.values(), strict=False)) if len({len(each) for each in columns.values()}) == 1 else []
    rows = [row for row in rows if all(map(math.isfinite, row)) and any(row)]
    if len(columns) < 3 or len(rows) < FEW:
        return ""
    for place, name in enumerate(columns):
        if all(abs(sum(row) - 2 * row[place]) <= NEAR * max(abs(row[place]), NEAR) for row in rows):
            return name
    return ""


def falls_at_first(values: Sequence[float]) -> bool:
    """Whether positive values begin high and fall, as a loss does; what follows does not matter."""
    finite = [value for value in values if math.isfinite(value)]
    head = finite[: max(2 * FEW, len(finite) // 2)]
    half = len(head) // 2
    return half >= 2 and min(head) >= 0 and median(head[half:]) < median(head[:half])
