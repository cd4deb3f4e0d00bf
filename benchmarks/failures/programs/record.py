"""What is on record about a changed program."""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """One program with one change."""

    name: str
    base: str
    edits: tuple[tuple[str, str], ...]
    causes: tuple[str, ...] = ()
    """Right answers; none for a healthy program."""


NOT_FINITE_FORMULA = ("loss-formula-singularity", "naive-exp", "where-nan-branch")
