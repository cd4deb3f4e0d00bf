"""Lines with the number before its name: darknet, tinygrad, and darknet forks that list loss terms without a separator.

::

     40: 12.25, 13.5 avg loss, 0.000100 rate, 5.1 seconds, 64 images
    -nan avg loss
    10.5008 loss, 0.000016689301 LR, 8.83 GB used, 18.70 s
    171: nGT 8, recall 0, proposals 0, loss: x 0.5, y 0.4, w 12.1, h 18.9, conf 40.3, cls 2.1, total 74.3

A rate of 0.000000 is truncated, not zero: darknet prints six digits and starts far below that.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_LINE = re.compile(
    rf"\s*+(?:\(next [^)]{{0,80}}\)\s{{0,9}})?(?:(?P<step>\d+):\s{{1,9}})?(?:(?P<now>{NUMBER}),\s{{0,9}})?"
    rf"(?P<mean>{NUMBER}) (?:(?:avg|average|train(?:ing)?) )?loss\s{{0,9}}(?:,|;|$)",
    re.IGNORECASE,
)
_RATE = re.compile(rf"[,;]\s*({NUMBER}) (?:rate|lr|learning rate)\s*(?:[,;]|$)", re.IGNORECASE)
_PARTS = re.compile(
    rf"\s*+(?:(?P<step>\d+):\s.{{0,120}}?)?\bloss: (?P<parts>(?:[a-z_]+ {NUMBER}, ){{1,20}})"
    rf"total (?P<total>{NUMBER})\s*$",
    re.IGNORECASE,
)
_PART = re.compile(rf"([a-z_]+) ({NUMBER}), ", re.IGNORECASE)


class ValuesFirst(Format):
    """One line per step."""

    marks = (" loss", " total ")

    def read(self, line: str, start: int) -> Reading | None:
        parts = _PARTS.match(line, start)
        if parts:
            reading = Reading("darknet", fields=[("loss", *parts.span("total"))])
            for part in _PART.finditer(line, *parts.span("parts")):
                reading.fields.append((f"loss_{part[1].lower()}", *part.span(2)))
            if parts["step"]:
                reading.fields.append(("step", *parts.span("step")))
            return reading
        found = _LINE.match(line, start)
        if found is None:
            return None
        reading = Reading("darknet" if found["now"] else "plain")
        if found["step"]:
            reading.fields.append(("step", *found.span("step")))
        reading.fields.append(("loss", *found.span("now" if found["now"] else "mean")))
        if found["now"]:
            reading.fields.append(("avg_loss", *found.span("mean")))
        rate = _RATE.search(line, found.end() - 1)
        if rate:
            if rate[1].strip("0."):
                reading.fields.append(("lr", *rate.span(1)))
            else:
                reading.has_shape = False
        return reading
