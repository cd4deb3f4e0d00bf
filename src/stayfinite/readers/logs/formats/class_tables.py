"""Scores of each class in a table with bars, as OpenMMLab prints them.

::

    |   Class    |  IoU  |  Acc  |
    +------------+-------+-------+
    | background | 95.43 | 98.46 |
    |   human    |  0.0  |  nan  |

A cell becomes the metric `iou_class_human`.
"""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.names import plain
from stayfinite.readers.logs.pairs import NUMBER
from stayfinite.readers.logs.reading import Reading

_HEADING = lazy_regex(r"\s*+\|\s*+(?:class|category|label)\w*\s*+\|(?:[\w@.\s-]{1,16}\|){1,12}\s*$", re.IGNORECASE)
_RULER = lazy_regex(r"\s*+[+|][-+=|:]{3,}\s*$")
_ROW = lazy_regex(rf"\s*+\|\s*+([A-Za-z][^|\n]{{0,40}}?)\s*+\|((?:\s*+{NUMBER}\s*+\|){{1,12}})\s*$")
_CELL = lazy_regex(NUMBER)


class ClassTables(Format):
    """Open from a heading that begins with `Class` to the first line that is neither a row nor a ruler."""

    waits = True
    marks = ("| class", "|class", "|  class", "|   class", "| category", "| label")

    def __init__(self) -> None:
        self._scores: list[str] = []

    def read(self, line: str, start: int) -> Reading | None:
        if _HEADING.match(line, start):
            self._scores = [plain(cell) for cell in line[start:].strip().strip("|").split("|")[1:]]
            self.is_open = True
            return None
        row = _ROW.match(line, start) if self.is_open else None
        if row is None:
            self.is_open = self.is_open and _RULER.match(line, start) is not None
            return None
        cells = list(_CELL.finditer(line, row.start(2), row.end(2)))
        if len(cells) != len(self._scores):
            return None
        name = plain(row[1])
        fields = [(f"{score}_class_{name}", *cell.span()) for score, cell in zip(self._scores, cells, strict=True)]
        return Reading("table", fields=fields, is_point=False, has_shape=False)
