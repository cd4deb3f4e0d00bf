"""Rows without names: what a loop of ten lines prints.

::

    99 674.6989
    199 447.5712
    299 nan

The first number counts up, the second is the loss. One such row alone may be anything, so the first is remembered only,
unless it is NaN.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_ROW = re.compile(rf"\s*(\d{{1,9}})\s*[\s,:;|]\s*(?:tensor\()?({NUMBER})(?:,[^()\n]{{0,80}}\)|\))?\s*$")
_MEASURED = re.compile(r"\.|e|nan|inf", re.IGNORECASE)


class BareRows(Format):
    """A step and a loss a line, the steps rising."""

    marks = (".", "nan", "inf")
    waits = True

    def __init__(self) -> None:
        self._step = -1

    def read(self, line: str, start: int) -> Reading | None:
        """See ``Format.read``."""
        row = _ROW.match(line, start)
        self.is_open = row is not None and _MEASURED.search(row[2]) is not None
        if row is None or not self.is_open:
            return None
        before, self._step = self._step, int(row[1])
        follows = 0 <= before < self._step
        if not follows and row[2][-1].isdigit():
            return None
        return Reading("plain", fields=[("step", *row.span(1)), ("loss", *row.span(2))], has_shape=False)
