"""Evaluation blocks: COCO's summary and confusion matrices.

::

     Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.000
    [[    0     0  7917]
     [    0     0  2748]]

A precision becomes the metric `coco_ap`. From a matrix, whose rows are true classes, `confusion/answers` counts the
predicted classes once a second row with examples is read.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

ANSWERS = "confusion/answers"
_PRECISION = re.compile(rf"\s*Average Precision\s+\(AP\) @\[[^\]]{{10,80}}\] = ({NUMBER})")
_ROW = re.compile(r"\s*(\[?)\[\s*(\d+(?:[\s,]+\d+){1,40})\s*\]{1,2}\s*$")


class Evaluations(Format):
    """Open between the rows of a matrix."""

    waits = True
    marks = ("average precision", "[[")

    def __init__(self) -> None:
        self._answered: set[int] = set()
        self._rows = 0

    def read(self, line: str, start: int) -> Reading | None:
        precision = _PRECISION.match(line, start)
        if precision is not None:
            place = () if precision[1].startswith("-") else (("coco_ap", *precision.span(1)),)
            return Reading("coco", fields=list(place), is_point=False)
        row = _ROW.match(line, start)
        self.is_open = row is not None and (bool(row[1]) or self.is_open)
        if row is None or not self.is_open:
            return None
        if row[1]:
            self._answered, self._rows = set(), 0
        counts = [int(count) for count in re.split(r"[\s,]+", row[2])]
        self._answered.update(column for column, count in enumerate(counts) if count)
        self._rows += any(counts)
        if self._rows < 2:
            return None
        return Reading("", constants={ANSWERS: float(len(self._answered))}, is_point=False, has_shape=False)
