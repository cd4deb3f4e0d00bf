"""nanoGPT, litgpt and their many children.

::

    iter 3010: loss nan, time 1019.95ms, mfu 14.12%
    step 3000: train loss 4.0390, val loss 4.0427
    step 1 | train 106.971 | val 107.465
    iter 7 step 1: loss 1.1201, iter time: 1819.72ms (optimizer.step)
    Epoch 1 | iter 512 step 128 | loss train: 1.123, val: n/a | iter time: 38.35 ms (step) remaining time: 0:01:41
    Ep 1 | iter 4 | step 1: loss train (curr): 1.585, val (prev val iter): None | iter time: 181.34 ms (opt.step)
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_ITER = re.compile(rf"\biter\s+(\d+)(?:\s+step\s+(\d+))?:\s+loss\s+({NUMBER})")
_STEP = re.compile(
    rf"^\W*(?:\w{{2,12}}\s+)?(\d+)\s{{0,3}}[:|]\s*train(?: loss)?\s+({NUMBER})\s{{0,3}}[,|]\s*"
    rf"val(?: loss)?\s+({NUMBER})"
)
_LITGPT = re.compile(
    rf"\bEp(?:och)?\s+(\d+)\s*\|\s*iter\s+(\d+)[\s|]+step\s+(\d+)\s*[|:]\s*loss train[^:|]{{0,20}}:\s*({NUMBER}),"
    rf"\s*val[^:|]{{0,30}}:\s*({NUMBER}|n/a|None)",
    re.IGNORECASE,
)


class NanoGpt(Format):
    """Iteration lines, and the estimates of both losses every so often."""

    marks = ("iter ", "step ", "train ")

    def read(self, line: str, start: int) -> Reading | None:
        """See ``Format.read``."""
        match = _ITER.search(line, start)
        if match:
            return Reading("nanogpt", fields=[("step", *match.span(1)), ("loss", *match.span(3))])
        match = _STEP.search(line, start)
        if match:
            fields = [("step", *match.span(1)), ("loss", *match.span(2)), ("val_loss", *match.span(3))]
            return Reading("nanogpt", fields=fields)
        match = _LITGPT.search(line, start)
        if match:
            fields = [("epoch", *match.span(1)), ("step", *match.span(2)), ("loss", *match.span(4))]
            if match[5] not in {"n/a", "None"}:
                fields.append(("val_loss", *match.span(5)))
            return Reading("litgpt", fields=fields)
        return None
