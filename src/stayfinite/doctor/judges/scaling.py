"""A GradScaler that finds no working scale."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told, told

FEWEST = 10
"""Skipped steps below which the scale may still settle."""


def judge(program: Program) -> Iterator[Told]:
    """The scale fell below 1 and steps are skipped: the overflow does not depend on it."""
    scales = program.scales.values
    if program.skipped < FEWEST or not len(scales) or scales[-1] >= 1.0:
        return
    place = next(iter(program.losses), ("", 0))
    yield told(
        "loss-scale-collapse",
        [
            f"GradScaler skipped {program.skipped} of {len(scales)} steps; its scale fell to {scales[-1]:.3g}.",
            "Gradients overflow at every scale.",
        ],
        place=place, weight=2.0,
    )  # fmt: skip
