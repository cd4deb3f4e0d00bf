"""OpenMMLab: mmcv's runners (mmdet, mmocr, mmseg) and mmengine.

::

    mmdet - INFO - Epoch [1][250/29317]    lr: 6.653e-03, memory: 5717, loss_cls: 13794.6467, loss: nan
    Epoch(train) [1][240/735]  lr: 1.0000e-03  eta: 0:10:00  loss: 2.31  grad_norm: nan
    Iter(train) [  50/160000]  lr: 6.1e-08  loss: 2.31
    mmseg - INFO - Iter [50/160000]    lr: 1.9e-06, loss: 2.31
    Epoch(val) [1][735/735]  coco/bbox_mAP: 0.01
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, TOTAL, Reading

_EPOCH = re.compile(r"\bEpoch\s*(?:\((\w+)\))?\s*\[\s*(\d+)\]\s*\[\s*(\d+)/\s*(\d+)\]")
_ITER = re.compile(r"\bIter\s*(?:\((\w+)\))?\s*\[\s*(\d+)/\s*(\d+)\]")


class OpenMmlab(Format):
    """One line per interval, with every loss term."""

    marks = ("epoch", "iter")

    def read(self, line: str, start: int) -> Reading | None:
        head = _EPOCH.search(line, start)
        if head:
            fields = [("epoch", *head.span(2)), (BATCH, *head.span(3)), (BATCHES, *head.span(4))]
        else:
            head = _ITER.search(line, start)
            if head is None:
                return None
            fields = [("step", *head.span(2)), (TOTAL, *head.span(3))]
        reading = Reading("openmmlab", fields=list(fields))
        evaluation = head[1] is not None and head[1] != "train"
        pairs = reading.without_eta(separated_pairs(line, head.end()), line, head.end())
        reading.take(pairs, evaluation=evaluation)
        reading.is_point = not evaluation
        if len(reading.fields) == len(fields):
            return None
        if evaluation:  # batches of the validation set
            reading.fields = [field for field in reading.fields if field not in fields or field[0] == "epoch"]
        return reading
