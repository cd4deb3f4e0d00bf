"""Rows without names, as a ten-line training loop prints them.

::

    99 674.6989
    199 447.5712
    299 nan

The first number counts up, the second is the loss. A single row may be anything, so the first is only remembered,
unless it is NaN. A lone number may be a score or a reward; two in a row above 10,000 are losses.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_ROW = re.compile(rf"\s*(\d{{1,9}})\s*[\s,:;|]\s*(?:tensor\()?({NUMBER})(?:,[^()\n]{{0,80}}\)|\))?\s*$")
_ALONE = re.compile(
    r"\s*(?:tensor\()?(\d{5,}\.\d+|\d(?:\.\d+)?e\+?\d{1,3}|nan|inf)(?:,[^()\n]{0,80}\)|\))?\s*$", re.IGNORECASE
)
_MEASURED = re.compile(r"\.|e|nan|inf", re.IGNORECASE)


class BareRows(Format):
    """Lines of a rising step and a loss."""

    marks = (".", "nan", "inf")
    waits = True

    def __init__(self) -> None:
        self._step = -1
        self._follows = False
        """Whether the previous line was a single large number."""

    def read(self, line: str, start: int) -> Reading | None:
        alone = _ALONE.match(line, start)
        follows, self._follows = self._follows, alone is not None
        if alone is not None:
            self.is_open = True
            return Reading("plain", fields=[("loss", *alone.span(1))], has_shape=False) if follows else None
        row = _ROW.match(line, start)
        self.is_open = row is not None and _MEASURED.search(row[2]) is not None
        if row is None or not self.is_open:
            return None
        before, self._step = self._step, int(row[1])
        follows = 0 <= before < self._step
        if not follows and row[2][-1].isdigit():
            return None
        return Reading("plain", fields=[("step", *row.span(1)), ("loss", *row.span(2))], has_shape=False)
