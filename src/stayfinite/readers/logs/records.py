"""Measurements that arrive as names and values: JSON documents, CSV tables, TensorBoard scalars."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import NO_METRICS, column_of, name_rank, plain
from stayfinite.core.series import RunSeries
from stayfinite.readers.logs.messages import Messages
from stayfinite.readers.logs.pairs import number

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


_CELL = lazy_regex(r"\s*\"?[A-Za-z_#][\w ./@%():#\-\[\]$]{0,120}\"?\s*")


def separator(line: str) -> str:
    """Return the delimiter of a CSV header line, or "" if the line is not a header."""
    for mark in (",", "\t", ";"):
        if mark not in line:
            continue
        cells = [cell for cell in line.strip().split(mark) if cell.strip()]
        if len(cells) >= 2 and all(_CELL.fullmatch(cell) for cell in cells):
            names = [_name(cell) for cell in cells]
            known = sum(bool(column_of(name)) for name in names)
            if known >= 1 and len(set(names)) == len(names) and all(len(name.split("_")) < 9 for name in names):
                return mark
    return ""


class CsvTable:
    """CSV with a header: Lightning's metrics.csv, wandb and TensorBoard exports, ultralytics' results.csv.

    ::

        epoch,grad_norm,lr-AdamW,step,train_loss,val_loss
        0,,0.001,49,2.31,
        0,,,99,,nan
    """

    def __init__(self, source: str) -> None:
        self._records = Records(source, "csv")
        self._source = source.lower()
        self._separator = ""
        self._names: list[str] = []
        self._lines = 0

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._lines += 1
            if not line.strip():
                self._lines -= line.endswith("\r")
                continue
            if not self._separator:
                self._separator = separator(line) or ","
                self._names = self._header(line)
                continue
            cells = self._cells(line)
            values = [as_number(cell.strip()) for cell in cells]
            if all(value is None for value in values):
                if separator(line) == self._separator:  # a second run appended to the same file
                    self._names = self._header(line)
                else:
                    self._records.messages.add(line, self._lines)
                continue
            record = {
                name: value for name, value in zip(self._names, values, strict=False) if value is not None and name
            }
            self._records.add(record, self._lines)

    def close(self) -> None:
        """Do nothing: no line is buffered."""

    @property
    def series(self) -> list[RunSeries]:
        found = self._records.close()
        found[0].lines = self._lines
        return found

    def _cells(self, line: str) -> list[str]:
        if '"' in line:
            return next(csv.reader([line], delimiter=self._separator), [])
        return line.split(self._separator)

    def _header(self, line: str) -> list[str]:
        names = [_name(cell) for cell in self._cells(line)]
        return [self._value_name() if name == "value" else name for name in names]

    def _value_name(self) -> str:
        """Name the `value` column of a TensorBoard export, which has one scalar per file, after the file."""
        if "loss" in self._source:
            return "val_loss" if "val" in self._source else "loss"
        return "grad_norm" if "grad" in self._source else "value"


def _name(cell: str) -> str:
    """`"run 7 - train/loss"` -> `train/loss`; "" for the __MIN and __MAX columns of wandb exports."""
    name = cell.strip().strip('"').rpartition(" - ")[2]
    return "" if name.endswith(("__MIN", "__MAX")) else plain(name)


_LONGEST_RECORD = 1 << 20
_LIST = lazy_regex(r"\[\s*(?=\{)")
_NUMBER_LIST = lazy_regex(
    r"\"([^\"\n]{1,80})\"\s*:\s*\[\s*([-+\d.][^\[\]{}\"]{0,1000000}|(?:NaN|-?Infinity)[^\[\]{}\"]{0,1000000})\]"
)
_SINGLE = lazy_regex(
    r"\"(max_steps|global_step|num_train_epochs|train_batch_size|num_input_tokens_seen)\"\s*:\s*(\d+(?:\.\d+)?)"
)
_BETWEEN = lazy_regex(r"[\s,]*")


class JsonDocument:
    """Multi-line JSON: trainer_state.json, arrays of records, a history of lists. Truncated files are fine.

    ::

        {
            "best_metric": null,
            "global_step": 500,
            "log_history": [
                {"epoch": 0.1, "grad_norm": NaN, "learning_rate": 5e-05, "loss": 0.0, "step": 10},
                {"eval_loss": NaN, "epoch": 1.0, "step": 100},
            ],
            "max_steps": 500,
        }

    Parsed as a stream: each object in a list is one record, so memory does not grow with the file.
    """

    def __init__(self, source: str) -> None:
        self._records = Records(source, "trainer state" if source.endswith("trainer_state.json") else "json")
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._lines = 0
        self._in_list = False
        self._histories: dict[str, list[float]] = {}

    def feed(self, text: str) -> None:
        self._text += text
        self._advance()

    def close(self) -> None:
        """Read what is left; the document may be incomplete."""
        self._advance()
        self._outside(self._text)
        self._consume(len(self._text))
        if not self._records.series.points_seen and self._histories:
            self._by_lists()

    @property
    def series(self) -> list[RunSeries]:
        found = self._records.close()
        found[0].lines = self._lines + bool(self._text.strip())
        return found

    def _advance(self) -> None:
        while True:
            if self._in_list:
                if not self._element():
                    return
                continue
            match = _LIST.search(self._text)
            if match is None:
                if len(self._text) > _LONGEST_RECORD:
                    keep = len(self._text) - _LONGEST_RECORD // 2
                    self._outside(self._text[:keep])
                    self._consume(keep)
                return
            self._outside(self._text[: match.start()])
            self._consume(match.end())
            self._in_list = True

    def _element(self) -> bool:
        """Read one list element. Return False if more text is needed."""
        between = _BETWEEN.match(self._text)
        place = between.end() if between else 0
        if place >= len(self._text):
            return False
        if self._text[place] != "{":
            self._in_list = False
            return True
        try:
            record, end = self._decoder.raw_decode(self._text, place)
        except (ValueError, RecursionError):
            if len(self._text) - place < _LONGEST_RECORD:
                return False
            self._consume(place + 1)  # not a record, or one that is too long
            self._in_list = False
            return True
        self._consume(place)
        self._take(record)
        self._consume(end - place)
        return True

    def _take(self, record: Any) -> None:
        if isinstance(record, dict):
            self._records.add(record, self._lines + 1)

    def _consume(self, count: int) -> None:
        self._lines += self._text.count("\n", 0, count)
        self._text = self._text[count:]

    def _outside(self, text: str) -> None:
        for match in _SINGLE.finditer(text):
            if match[1] == "max_steps":
                self._records.series.total_steps = float(match[2]) or None
        for match in _NUMBER_LIST.finditer(text):
            values = [as_number(part.strip()) for part in match[2].split(",")]
            self._histories.setdefault(match[1], [value for value in values if value is not None])

    def _by_lists(self) -> None:
        """`{"loss": [..], "val_loss": [..]}`: one record per list position."""
        longest = max(map(len, self._histories.values()))
        for place in range(longest):
            record = {name: values[place] for name, values in self._histories.items() if place < len(values)}
            self._records.add({"step": float(place), **record}, place + 1)
