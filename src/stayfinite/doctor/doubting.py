"""Why a program that ran to its end without a finding is still not called healthy."""

from __future__ import annotations

from stayfinite.doctor.judges.course import classes_at_chance, stands_still
from stayfinite.doctor.record import Program

FEWEST_SKIPPED = 5
OFTEN_SKIPPED = 0.05
"""Share of the steps that a scaler skips only while it finds no scale that lasts."""


def doubt(program: Program) -> str:
    """One sentence; empty if nothing speaks against calling it healthy."""
    if scale_keeps_falling(program):
        return "the loss scale keeps falling"
    if classes := classes_at_chance(program):
        return f"the loss stays at ln {classes:,}, chance level for {classes:,} classes"
    return "the loss does not move, and no cause was found" if stands_still(program) else ""


def scale_keeps_falling(program: Program) -> bool:
    """Whether a GradScaler skips often and reaches a new lowest scale in the last third of its updates.

    The search for a first scale ends early, and a scale that grows and falls back reaches no new low.
    """
    scales = program.scales.values
    if program.skipped < max(FEWEST_SKIPPED, OFTEN_SKIPPED * len(scales)):
        return False
    return min(scales[2 * len(scales) // 3 :]) < min(scales[: 2 * len(scales) // 3])
