"""Where topics note what cannot be together: one list for all of them, judged by one rule."""

from __future__ import annotations

from stayfinite.inspection.notes import Notes

NAME = "plan.contradictions"
CAUSE = "config-contradiction"


def contradict(notes: Notes, text: str, where: str, fix: str = "") -> str:
    """Note a contradiction; the cause that judges it, for the line of the check list that it belongs to."""
    found = notes.observed.get(NAME)
    notes.saw(NAME, [*(found.value if found is not None else []), (text, where, fix)])
    return CAUSE
