"""maskrcnn-benchmark, detectron2, and the loggers that DETR and torchvision's references took from them.

::

    maskrcnn_benchmark.trainer INFO: eta: 1 day, 2:03:04  iter: 5100  loss: nan (nan)  lr: 0.000467  max mem: 5000
    [07/01 10:00:00 d2.utils.events]:  eta: 0:10:00  iter: 19  total_loss: 5.1  loss_cls: 4.3  lr: 0.0002
    Epoch: [0]  [  10/2000]  eta: 0:20:00  lr: 0.000100  class_error: 90.1  loss: 38.1 (40.2)  loss_ce: 1.2 (1.3)

The first number is the one of now, that in parentheses an average.
"""

from __future__ import annotations

import re

from stayfinite.core.series import RUNNING_AVERAGE
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import AVERAGE, separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, Reading

_EPOCH = re.compile(r"\bEpoch:?\s*\[(\d+)\]\s+\[\s*(\d+)/\s*(\d+)\]\s+eta:")
_ITER = re.compile(r"\biter: (\d+)\s+")
_MEMORY = re.compile(r"\[\s*\d+/\s*\d+\]\s+eta:.{0,200}\bmax mem: (\d+)")
_EVALUATES = re.compile(r"\bTest:\s+\[")


class Detectron(Format):
    """One line an interval, fields between two spaces."""

    marks = ("eta:", "iter:")

    def read(self, line: str, start: int) -> Reading | None:
        """See ``Format.read``."""
        head = _EPOCH.search(line, start)
        alone = None if head or "loss" in line else _MEMORY.search(line, start)
        if alone:
            return Reading("detectron", [("max_mem", *alone.span(1))], is_point=False, has_shape=False)
        reading = Reading("detectron", first_epoch=0)
        if head:
            reading.fields = [("epoch", *head.span(1)), (BATCH, *head.span(2)), (BATCHES, *head.span(3))]
        elif not _ITER.search(line, start) or "loss" not in line:
            return None
        evaluation = _EVALUATES.search(line, start) is not None
        reading.take(reading.without_eta(separated_pairs(line, head.end() - 4 if head else start), line, start))
        reading.is_point = not evaluation and reading.has("loss", "lr")
        average = AVERAGE.search(line, start)
        if average and reading.is_point:
            reading.fields.append((RUNNING_AVERAGE, *average.span(1)))
        return reading if reading.is_point else None
