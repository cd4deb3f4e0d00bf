"""CSV metrics with a header: Lightning's metrics.csv, wandb and TensorBoard exports, ultralytics' results.csv.

::

    epoch,grad_norm,lr-AdamW,step,train_loss,val_loss
    0,,0.001,49,2.31,
    0,,,99,,nan
"""

from __future__ import annotations

import csv
from collections.abc import Iterable

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.readers.logs.names import column_of, plain
from stayfinite.readers.logs.records import Records, as_number

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
    """Reads CSV lines, header first."""

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
