"""Record contradictory settings in one list, judged by one rule."""

from __future__ import annotations

from stayfinite.inspection.notes import Notes

NAME = "plan.contradictions"
CAUSE = "config-contradiction"


def contradict(notes: Notes, text: str, where: str, fix: str = "") -> str:
    """Record a contradiction; return the cause that judges it, for the check list."""
    found = notes.observed.get(NAME)
    notes.saw(NAME, [*(found.value if found is not None else []), (text, where, fix)])
    return CAUSE
