"""Activation traces that end in infinity (transformers' DebugUnderflowOverflow): the responsible module."""

from __future__ import annotations

import math

from stayfinite.rules.facts import Facts

FP16_LARGEST = 65504.0
LEAST = 1e3
"""Finite values this large before an infinite one: near the fp16 limit, far from other formats' limits."""
FRAME = "overflow/"
"""Prefix of the metrics with each module's largest values."""


def overflowing_module(facts: Facts) -> tuple[str, float, str] | None:
    """``(module, largest finite value before, where)`` of the first module whose values become infinite."""
    for run in facts.runs:
        largest = 0.0
        for name, track in run.metrics.items():
            if not name.startswith(FRAME):
                continue
            for value, line in zip(track.values, track.lines, strict=True):
                if math.isinf(value) and LEAST <= largest <= FP16_LARGEST:
                    return name.removeprefix(FRAME), largest, run.where(line)
                if math.isfinite(value):
                    largest = max(largest, abs(value))
    return None
