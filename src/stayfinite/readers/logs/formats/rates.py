"""Learning rates and loss scales on their own lines, if marked as measured.

::

    Epoch: [101][   10/ 5004]    LR 0.045000
    [Epoch 1]       Learning rate: 1.00e-4
    Iteration 2380, lr = 0.001
    Current learning rate: 0.001
    lr=[0.0] mean=-0.000124
    DLL 2020-06-04 01:04:20.355678 - PARAMETER loss_scale : 2.9103830456733704e-11

The mark is a step or epoch before the rate, the word `current`, or a list, as schedulers return it. A line of settings
(`lr: 0.1, epochs: 90`) has none of these.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import BATCH, BATCHES, Reading

_PLACE = (
    r"(?:\[?epoch:?\s*\[?\s*(?P<epoch>\d+)(?:/\d+)?\s*\]?(?:\s*\[\s*(?P<batch>\d+)\s*/\s*(?P<batches>\d+)\s*\])?"
    r"|(?:iter(?:ation)?|(?:global[ _])?step)[ :=#]{1,3}(?P<step>\d+)(?:\s*/\s*\d+)?)"
)
_RATE = re.compile(
    rf"\s*+(?:{_PLACE}[\s,;:|\]-]{{1,20}}(?:current\s+)?(?:lr|learning[ _]rate)\s*[:=]?"
    rf"|current (?:lr|learning rate)\s*(?:is|[:=])|(?:last_)?lr\s*[:=]\s*(?=\[))"
    rf"\s*\[{{0,2}}(?P<rate>{NUMBER})(?:[\],]|\s|$)",
    re.IGNORECASE,
)
_SCALE = re.compile(
    rf"\s*+(?:DLL\s.{{10,40}}?-\s.{{0,60}}?)?(?:PARAMETER |current )"
    rf"(?:loss|grad)[ _]?scale\s*[:=]\s*(?P<scale>{NUMBER})\s*$",
    re.IGNORECASE,
)


class Rates(Format):
    """A rate or a scale with its step or epoch."""

    marks = ("lr", "learning rate", "learning_rate", "scale")

    def read(self, line: str, start: int) -> Reading | None:
        scale = _SCALE.match(line, start)
        if scale:
            return Reading("plain", fields=[("loss_scale", *scale.span("scale"))])
        found = _RATE.match(line, start)
        if found is None or "loss" in line[found.end() :].lower() or "norm" in line[found.end() :].lower():
            return None
        reading = Reading("plain", fields=[("lr", *found.span("rate"))], first_epoch=0, epoch_is_step=False)
        for name, group in (("epoch", "epoch"), (BATCH, "batch"), (BATCHES, "batches"), ("step", "step")):
            if found[group] is not None:
                reading.fields.append((name, *found.span(group)))
        return reading
