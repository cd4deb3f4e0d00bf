"""Keras: one heading per epoch, then a redrawn bar with running means.

::

    Epoch 3/10
     100/1875 [=>............................] - ETA: 5s - loss: 0.4300 - accuracy: 0.8800
    1875/1875 ━━━━━━━━━━━━━━━━━━━━ 3s 1ms/step - accuracy: 0.9 - loss: nan - val_loss: nan
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, Reading

_HEADING = re.compile(r"\s*Epoch\s+(\d+)\s*/\s*\d+\s*:?\s*$")
_BAR = re.compile(r"\s*(\d+)/(\d+)\s+(\[[=>.]*\]|[━╸╺ ]*)\s(?:(\S.{0,40}?)\s)??-\s(?=(?!ETA)\w+: )")


class Keras(Format):
    """Headings and bars."""

    marks = ("epoch", " - ")

    def read(self, line: str, start: int) -> Reading | None:
        heading = _HEADING.match(line, start)
        if heading:
            return Reading("keras", fields=[("epoch", *heading.span(1))], is_point=False, moves=True)
        bar = _BAR.match(line, start)
        if bar is None:
            return None
        reading = Reading("keras", fields=[(BATCH, *bar.span(1)), (BATCHES, *bar.span(2))])
        if bar[3]:
            reading.wild.append((*bar.span(3), r"[\[\]=>.━╸╺ ]*+"))
        if bar[4]:
            reading.wild.append((*bar.span(4), ".{0,60}?"))
        reading.take([pair for pair in separated_pairs(line, bar.end() - 1) if pair[0].lower() != "eta"])
        reading.is_point = reading.has("loss", "lr")
        return reading if len(reading.fields) > 2 else None
