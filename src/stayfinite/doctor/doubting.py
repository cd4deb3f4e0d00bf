"""Why a program that ran to its end without a finding is still not called healthy."""

from __future__ import annotations

from stayfinite.doctor.judges.course import classes_at_chance, stands_still
from stayfinite.doctor.record import Program


def doubt(program: Program) -> str:
    """One sentence; empty if nothing speaks against calling it healthy."""
    if classes := classes_at_chance(program):
        return f"the loss stays at ln {classes:,}, chance level for {classes:,} classes"
    return "the loss does not move, and no cause was found" if stands_still(program) else ""
