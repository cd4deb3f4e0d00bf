"""DeepSpeed overflow and step lines.

::

    [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
    [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.
    [Rank 0] step=2, skipped=0, lr=[2.8e-07, 2.8e-07], mom=[[0.9, 0.95], [0.9, 0.95]]

The second form is used with bf16, fp32 and a static loss scale and contains no scale.
"""

from __future__ import annotations

import math
import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import RANK, SKIPS_EVER, Reading

_OVERFLOW = re.compile(
    r"OVERFLOW!\s*(?:Rank\s+(\d+)\s+)?Skipping step\.?"
    rf"(?:.{{0,80}}?loss scale:\s*({NUMBER})(?:,?\s+reducing to\s+({NUMBER}))?)?"
)
_NOT_FINITE = re.compile(r"OVERFLOW!\s*Skipping step\.?\s*Gradients are non-finite")
_STEP = re.compile(rf"\bstep=(\d+),\s*skipped=(\d+),\s*lr=\[+({NUMBER})")


class DeepSpeed(Format):
    """Overflow lines, including those from before the rename from deepscale, and step lines."""

    marks = ("overflow!", "skipped=")

    def read(self, line: str, start: int) -> Reading | None:
        if _NOT_FINITE.search(line, start):
            return Reading("deepspeed", constants={"grad_norm": math.nan}, skipped=True, is_message=True)
        overflow = _OVERFLOW.search(line, start)
        if overflow:
            reading = Reading("deepspeed", skipped=True, is_message=True)
            if overflow[1] is not None:
                reading.fields.append((RANK, *overflow.span(1)))
            if overflow[2] is not None:
                reading.fields.append(("loss_scale", *overflow.span(2 if overflow[3] is None else 3)))
            return reading if reading.fields else None
        step = _STEP.search(line, start)
        if step:
            fields = [("step", *step.span(1)), (SKIPS_EVER, *step.span(2)), ("lr", *step.span(3))]
            return Reading("deepspeed", fields=fields)
        return None
