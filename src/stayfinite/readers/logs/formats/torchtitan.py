"""torchtitan.

::

    [rank0]:[titan] 2025-01-02 03:04:05,678 - root - INFO - step:  3  loss:  4.9925  grad_norm:  2.6422  tps: 30,768
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import Reading

_HEAD = re.compile(r"(?<!\w)step:\s*\d+\s+(?=loss:|grad_norm:)")
_EVALUATES = re.compile(r"\bvalidate\s*$")


class TorchTitan(Format):
    """Training steps and `validate step:` lines."""

    marks = ("step:",)

    def read(self, line: str, start: int) -> Reading | None:
        head = _HEAD.search(line, start)
        if head is None:
            return None
        evaluation = _EVALUATES.search(line, start, head.start()) is not None
        reading = Reading("torchtitan", is_point=not evaluation)
        reading.take(separated_pairs(line, head.start()), evaluation=evaluation)
        return reading
