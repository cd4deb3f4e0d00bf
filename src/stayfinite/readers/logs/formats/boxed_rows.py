"""Two-column tables of name and value, as in guided-diffusion, stable-baselines and Lightning.

::

    | grad_norm  | 0.25     |
    | loss       | nan      |
    │        train_loss         │            nan            │

Each row is read on its own; the step comes in a later row and is ignored.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.names import column_of, is_evaluation, is_loss_part, plain
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_ROW = re.compile(rf"\s*+[|│]\s*+([A-Za-z][\w/.-]{{0,60}}+)\s*+[|│]\s*+({NUMBER})\s*+[|│]\s*$")


class BoxedRows(Format):
    """Losses and gradient norms; other rows stay messages."""

    marks = ("loss", "norm")

    def read(self, line: str, start: int) -> Reading | None:
        row = _ROW.match(line, start)
        if row is None:
            return None
        name = plain(row[1])
        column = column_of(name)
        if column in {"loss", "grad_norm"}:
            return Reading("table", fields=[(column, *row.span(2))])
        if is_loss_part(name) or (is_evaluation(name) and "loss" in name):
            return Reading("table", fields=[(name, *row.span(2))], is_point=False)
        return None
