"""Measurements that arrive as names and values: JSON records, table rows, TensorBoard scalars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from stayfinite.core.series import RunSeries
from stayfinite.readers.logs.messages import Messages
from stayfinite.readers.logs.names import NO_METRICS, column_of, name_rank, plain
from stayfinite.readers.logs.numbers import number

_DEEPEST = 8


class Records:
    """A series built from records."""

    def __init__(self, source: str, kind: str) -> None:
        self.series = RunSeries(source)
        self.messages = Messages()
        self._kind = kind
        self._loss_seen = False

    def add(self, record: Mapping[str, Any], line: int) -> None:
        """Add one record. Non-numbers are ignored; nested names are joined with `/`."""
        values = {plain(name): value for name, value in _numbers(record, "", 0)}
        columns: dict[str, float] = {}
        best: dict[str, str] = {}
        for name in values:
            column = column_of(name)
            if column and (column not in best or name_rank(name) < name_rank(best[column])):
                best[column] = name
        for name, value in values.items():
            column = column_of(name)
            if column and name == best[column]:
                columns[column] = value
            elif name not in NO_METRICS:
                columns[name] = value
        self._take(columns, "train_runtime" in values, record.get("decision") == "veto", line)

    def close(self) -> list[RunSeries]:
        series = self.series
        series.messages = self.messages.listed(series.source, series.rank)
        series.kind = self._kind if series.points_seen or series.metrics else ""
        return [series]

    def _take(self, columns: dict[str, float], is_summary: bool, skipped: bool, line: int) -> None:
        step, epoch = columns.pop("step", None), columns.pop("epoch", None)
        if step is not None and not math.isfinite(step):
            step = None
        loss, norm = columns.pop("loss", None), columns.pop("grad_norm", None)
        lr, scale = columns.pop("lr", None), columns.pop("loss_scale", None)
        work = columns.pop("throughput", None)
        if is_summary and loss is not None:
            columns["train_loss"] = loss
            loss = None if self._loss_seen else loss
        if any(value is not None for value in (loss, norm, lr, scale)):
            self._loss_seen = self._loss_seen or loss is not None
            self.series.add(line, step, loss, norm, lr, scale, epoch, work, skipped)
        elif work is not None:
            columns["throughput"] = work
        for name, value in columns.items():
            self.series.measure(name, value, step=step if step is not None else epoch, line=line)


def as_number(value: Any) -> float | None:
    """A number, quoted or not; None for anything else, including bools."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and 0 < len(value) <= 40:
        try:
            return number(value)
        except ValueError:
            return None
    return None


def _numbers(record: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        full = f"{path}{name}"
        if isinstance(value, Mapping):
            if depth < _DEEPEST:
                yield from _numbers(value, f"{full}/", depth + 1)
        else:
            found = as_number(value)
            if found is not None:
                yield full, found
