"""Object detection: detectron2 and relatives, OpenMMLab, darknet."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RUNNING_AVERAGE
from stayfinite.readers.logs.formats.format import Format, Head
from stayfinite.readers.logs.pairs import AVERAGE, NUMBER, separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, TOTAL, Reading, fields_of

_EPOCH = lazy_regex(r"\bEpoch:?\s*\[(?P<epoch>\d+)\]\s+\[\s*(?P<batch>\d+)/\s*(?P<batches>\d+)\]\s+(?=eta:)")
_ITER = lazy_regex(r"\biter: (\d+)\s+")
_MEMORY = lazy_regex(r"\[\s*\d+/\s*\d+\]\s+eta:.{0,200}\bmax mem: (\d+)")
_EVALUATES = lazy_regex(r"\bTest:\s+\[")


class Detectron(Format):
    """maskrcnn-benchmark, detectron2, and the loggers that DETR and torchvision's references derive from them.

    ::

        maskrcnn_benchmark.trainer INFO: eta: 1 day, 2:03:04  iter: 5100  loss: nan (nan)  lr: 0.000467  max mem: 5000
        [07/01 10:00:00 d2.utils.events]:  eta: 0:10:00  iter: 19  total_loss: 5.1  loss_cls: 4.3  lr: 0.0002
        Epoch: [0]  [  10/2000]  eta: 0:20:00  lr: 0.000100  class_error: 90.1  loss: 38.1 (40.2)  loss_ce: 1.2 (1.3)

    The first number is current, the one in parentheses an average.
    """

    marks = ("eta:", "iter:")

    def read(self, line: str, start: int) -> Reading | None:
        head = _EPOCH.search(line, start)
        alone = None if head or "loss" in line else _MEMORY.search(line, start)
        if alone:
            return Reading("detectron", [("max_mem", *alone.span(1))], is_point=False, has_shape=False)
        reading = Reading("detectron", first_epoch=0)
        if head:
            reading.fields = fields_of(head)
        elif not _ITER.search(line, start) or "loss" not in line:
            return None
        evaluation = _EVALUATES.search(line, start) is not None
        reading.take(reading.without_eta(separated_pairs(line, head.end() if head else start), line, start))
        reading.is_point = not evaluation and reading.has("loss", "lr")
        average = AVERAGE.search(line, start)
        if average and reading.is_point:
            reading.fields.append((RUNNING_AVERAGE, *average.span(1)))
        return reading if reading.is_point else None


class OpenMmlab(Format):
    """OpenMMLab: mmcv's runners (mmdet, mmocr, mmseg) and mmengine.

    ::

        mmdet - INFO - Epoch [1][250/29317]    lr: 6.653e-03, memory: 5717, loss_cls: 13794.6467, loss: nan
        Epoch(train) [1][240/735]  lr: 1.0000e-03  eta: 0:10:00  loss: 2.31  grad_norm: nan
        Iter(train) [  50/160000]  lr: 6.1e-08  loss: 2.31
        mmseg - INFO - Iter [50/160000]    lr: 1.9e-06, loss: 2.31
        Epoch(val) [1][735/735]  coco/bbox_mAP: 0.01
    """

    kind = "openmmlab"
    marks = ("epoch", "iter")
    heads = (
        Head(
            r"\bEpoch\s*(?:\((?P<mode>\w+)\))?\s*\[\s*(?P<epoch>\d+)\]\s*"
            r"\[\s*(?P<batch>\d+)/\s*(?P<batches>\d+)\]"
        ),
        Head(r"\bIter\s*(?:\((?P<mode>\w+)\))?\s*\[\s*(?P<step>\d+)/\s*(?P<total>\d+)\]"),
    )

    def read(self, line: str, start: int) -> Reading | None:
        reading = super().read(line, start)
        if reading is None:
            return None
        reading.fields = reading.without_eta(reading.fields, line, start)
        measured = len(reading.fields) > (3 if reading.has(BATCH) else 2)
        if not reading.is_point:  # batches of the validation set
            counts = (BATCH, BATCHES) if reading.has(BATCH) else ("step", TOTAL)
            reading.fields = [field for field in reading.fields if field[0] not in counts]
        return reading if measured else None


_LINE = lazy_regex(
    rf"\s*+(?:\(next [^)]{{0,80}}\)\s{{0,9}})?(?:(?P<step>\d+):\s{{1,9}})?(?:(?P<loss>{NUMBER}),\s{{0,9}})?"
    rf"(?P<avg_loss>{NUMBER}) (?:(?:(?:avg|average|train(?:ing)?) )?loss\s{{0,9}}(?:,|;|$)|avg,(?=\s{NUMBER} rate,))",
    re.IGNORECASE,
)
_RATE = lazy_regex(rf"[,;]\s*({NUMBER}) (?:rate|lr|learning rate)\s*(?:[,;]|$)", re.IGNORECASE)
_PARTS = lazy_regex(
    rf"\s*+(?:(?P<step>\d+):\s.{{0,120}}?)?\bloss: ((?:[a-z_]+ {NUMBER}, ){{1,20}})total (?P<loss>{NUMBER})\s*$",
    re.IGNORECASE,
)
_PART = lazy_regex(rf"([a-z_]+) ({NUMBER}), ", re.IGNORECASE)


_REGION = lazy_regex(r"\s*\S+ \(\w+ loss, Normalizer: \([^()]*\)+ ")


class DarknetRegions(Format):
    """Darknet's line of each region, behind the factors of its terms, which are settings.

    ::

        v3 (mse loss, Normalizer: (iou: 0.75, obj: 1.00, cls: 1.00) Region 82 Avg (IOU: 0.5), count: 4, total_loss = 3.1
    """

    marks = ("normalizer",)

    def read(self, line: str, start: int) -> Reading | None:
        head = _REGION.match(line, start)
        if head is None:
            return None
        reading = Reading("darknet")
        reading.take(separated_pairs(line, head.end()))
        reading.is_point = reading.has("loss")
        return reading if reading.fields else None


class ValuesFirst(Format):
    """Lines with the number before its name: darknet, its forks, tinygrad.

    ::

         40: 12.25, 13.5 avg loss, 0.000100 rate, 5.1 seconds, 64 images
        10313: 0.576849, 0.677636 avg, 0.002000 rate, 3.99 seconds, 1320064 images
        -nan avg loss
        10.5008 loss, 0.000016689301 LR, 8.83 GB used, 18.70 s
        171: nGT 8, recall 0, proposals 0, loss: x 0.5, y 0.4, w 12.1, h 18.9, conf 40.3, cls 2.1, total 74.3

    A rate of 0.000000 is truncated, not zero: darknet prints six digits and starts far below that.
    """

    marks = (" loss", " total ", " avg, ")

    def read(self, line: str, start: int) -> Reading | None:
        parts = _PARTS.match(line, start)
        if parts:
            found = _PART.finditer(line, *parts.span(2))
            terms = [(f"loss_{part[1].lower()}", *part.span(2)) for part in found]
            return Reading("darknet", fields=[*fields_of(parts), *terms])
        head = _LINE.match(line, start)
        if head is None:
            return None
        reading = Reading("darknet" if head["loss"] else "plain", fields=fields_of(head))
        if not head["loss"]:
            reading.fields = [(name.removeprefix("avg_"), begin, end) for name, begin, end in reading.fields]
        rate = _RATE.search(line, head.end() - 1)
        if rate and rate[1].strip("0."):
            reading.fields.append(("lr", *rate.span(1)))
        elif rate:
            reading.has_shape = False
        return reading
