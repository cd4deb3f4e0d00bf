"""The banner probe."""

from __future__ import annotations

from stayfinite.inspection.bench import Bench
from stayfinite.inspection.notes import Notes


def look(bench: Bench, notes: Notes) -> None:
    """Not built yet."""
