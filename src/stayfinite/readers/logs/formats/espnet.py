"""ESPnet 2.

::

    INFO: 5epoch:train:129-256batch: iter_time=0.001, loss_ctc=100.2, acc=0.3, loss=90.1, grad_norm=12.3, \
loss_scale=1.000, optim0_lr0=1.2e-06, train_time=0.5
    INFO: 5epoch results: [train] loss=80.1, acc=0.4, [valid] loss=91.2, acc=0.3, [att_plot] time=2 minutes
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import BATCH, Reading

_HEAD = re.compile(r"\b(\d+)epoch:(\w+):\d+-(\d+)batch:")
_RESULTS = re.compile(r"\b(\d+)epoch results:")
_VALID = re.compile(r"\[valid\]")


class EspNet(Format):
    """Intervals within an epoch, and epoch results."""

    marks = ("epoch:", "epoch results:")

    def read(self, line: str, start: int) -> Reading | None:
        head = _HEAD.search(line, start)
        if head:
            reading = Reading("espnet", fields=[("epoch", *head.span(1)), (BATCH, *head.span(3))])
            evaluation = head[2] != "train"
            pairs = separated_pairs(line, head.end())
            pairs = [("lr" if name == "optim0_lr0" else name, begin, end) for name, begin, end in pairs]
            reading.take([pair for pair in pairs if not pair[0].endswith("_time")], evaluation=evaluation)
            reading.is_point = not evaluation and reading.has("loss", "grad_norm")
            return reading
        results = _RESULTS.search(line, start)
        valid = _VALID.search(line, start) if results else None
        if results is None or valid is None:
            return None
        reading = Reading("espnet", fields=[("epoch", *results.span(1))], is_point=False)
        pairs = [pair for pair in separated_pairs(line, valid.end()) if "time" not in pair[0]]
        reading.take(pairs, evaluation=True)
        return reading
