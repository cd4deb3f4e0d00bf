r"""icefall and other k2 recipes.

::

    INFO [train.py:904] Epoch 1, batch 14300, loss[loss=0.2, simple_loss=0.4, over 5580.00 frames. ], \
tot_loss[loss=0.21, simple_loss=0.4, over 1e6 frames. ], batch size: 40, lr: 1.2e-02, grad_scale: 6.1e-05
    INFO [train.py:936] Epoch 1, validation: loss=0.19, simple_loss=0.36, over 1000.00 frames.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import BATCH, Reading

_HEAD = re.compile(r"\bEpoch\s+(\d+), batch\s+(\d+),\s+(?=\w*loss\[|\w*loss:)")
_VALIDATION = re.compile(r"\bEpoch\s+(\d+), validation:\s+")
_TOTAL = re.compile(r"\btot_loss\[[^\]]*\]?")


class Icefall(Format):
    """Batches and validations."""

    marks = (", batch ", "validation:")

    def read(self, line: str, start: int) -> Reading | None:
        validation = _VALIDATION.search(line, start)
        if validation:
            reading = Reading("icefall", fields=[("epoch", *validation.span(1))], is_point=False)
            reading.take(separated_pairs(line, validation.end()), evaluation=True)
            return reading
        head = _HEAD.search(line, start)
        if head is None:
            return None
        total = _TOTAL.search(line, head.end())
        reading = Reading("icefall", fields=[("epoch", *head.span(1)), (BATCH, *head.span(2))])
        pairs = separated_pairs(line, head.end())
        inside = [] if total is None else [pair for pair in pairs if total.start() <= pair[1] < total.end()]
        reading.take([pair for pair in pairs if pair not in inside])
        reading.fields += [(f"tot_loss/{name.strip()}", begin, end) for name, begin, end in inside]
        return reading if reading.has("loss", "loss_scale", "lr") else None
