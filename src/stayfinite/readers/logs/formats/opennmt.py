"""OpenNMT-py.

::

    [2023-01-02 03:04:05,678 INFO] Step 100/100000; acc: 16.1; ppl: 6103.2; xent: 8.7; lr: 0.00002; 5001/5500 tok/s
    [2023-01-02 03:04:05,678 INFO] Validation perplexity: 12.3
    Epoch 13, 64500/64667; acc: 57.58; ppl: 7.99; 5375 src tok/s; 5294 tgt tok/s; 18163 s elapsed
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, TOTAL, Reading

_HEAD = re.compile(r"\bStep\s+(\d+)\s*/\s*(\d+);")
_OLD = re.compile(r"\bEpoch\s+(\d+),\s*(\d+)/\s*(\d+);\s*acc:")
_SPEED = re.compile(r";\s*(\d+)\s*/\s*(\d+) tok/s")
_VALIDATION = re.compile(rf"\bValidation (perplexity|accuracy|loss|xent): ({NUMBER})\s*$")
_NUMBERED = re.compile(rf"[a-z]\s?[:=]\s{{0,4}}{NUMBER}", re.IGNORECASE)


class OpenNmt(Format):
    """Training steps and the two validation lines."""

    marks = ("step ", "validation ", "; acc:")

    def read(self, line: str, start: int) -> Reading | None:
        validation = _VALIDATION.search(line, start)
        if validation and _NUMBERED.search(line, start, validation.start()) is None:  # otherwise part of a longer line
            return Reading("opennmt", fields=[(f"valid_{validation[1]}", *validation.span(2))], is_point=False)
        head = _HEAD.search(line, start)
        if head is None:
            return self._old(line, start)
        reading = Reading("opennmt", fields=[("step", *head.span(1)), (TOTAL, *head.span(2))])
        reading.take(separated_pairs(line, head.end()))
        speed = _SPEED.search(line, head.end())
        if speed and not reading.has("throughput"):
            reading.fields.append(("throughput", *speed.span(2)))
        return reading if reading.has("loss", "lr", "ppl", "acc") else None

    @staticmethod
    def _old(line: str, start: int) -> Reading | None:
        head = _OLD.search(line, start)
        if head is None:
            return None
        fields = [("epoch", *head.span(1)), (BATCH, *head.span(2)), (BATCHES, *head.span(3))]
        reading = Reading("opennmt", fields=fields, is_point=False)
        reading.take(separated_pairs(line, head.end() - 5))
        return reading
