"""A conclusion, and the evidence for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import Any

from stayfinite.autopsy.conclusions.readings import Readings
from stayfinite.autopsy.steps.batch_parts import batch_size
from stayfinite.autopsy.steps.step import Outcome
from stayfinite.autopsy.worlds.worlds import Materials

UNDECIDED_SPIKE = {"gradient-spike": "exploding-gradient", "loss-spike": "loss-diverging"}
"""Cause of a finite spike if nothing is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """A cause, its confidence, and a fix."""

    cause: str
    """Rule slug; empty if nothing is wrong."""
    confidence: float
    why: str
    """One sentence, with numbers."""
    fix: str
    setting: Mapping[str, Any] = field(default_factory=dict)
    worlds: tuple[str, ...] = ()
    """Worlds that may verify the fix, best first."""
    covers: tuple[str, ...] = ()
    """Worlds whose change is what ``fix`` says; by default the first of ``worlds``."""

    def text(self, world: str, remedy: str) -> str:
        """The fix in words that match what was verified: ``world``, and the ``remedy`` that puts it into practice."""
        if not world or world in (self.covers or self.worlds[:1]):
            return self.fix
        return f"{remedy}; better, but not proved by re-run: {self.fix}"


@dataclass(frozen=True)
class Evidence:
    """Everything known when a conclusion is drawn."""

    readings: Readings
    outcomes: Mapping[str, Outcome]
    """By world name."""
    is_good: Mapping[str, bool]
    rows: list[int]
    """Rows that are bad alone, and without which the step is good."""
    materials: Materials
    reached: float | None = None
    """Largest magnitude in the output of the origin's module in fp32."""
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Changed modules by world name."""

    def good(self, world: str) -> bool:
        """Whether a world was run and came out good."""
        return self.is_good.get(world, False)

    def bad(self, world: str) -> bool:
        """Whether a world was run and came out bad."""
        return world in self.is_good and not self.is_good[world]

    @property
    def finite_spike(self) -> bool:
        """Whether the re-run is finite and still far above the others."""
        same = self.outcomes.get("same")
        return same is not None and same.finite and self.bad("same")

    @property
    def suspects(self) -> list[int]:
        """Bad rows, or those the trace points at; empty if that is all of them."""
        rows = self.rows or self.readings.rows
        return [] if len(rows) == batch_size(self.readings.step.batch) else rows

    def in_rows(self, rows: Sequence[int], before: str = " (", after: str = ")") -> str:
        """`(row 7 of the batch)`, with the dataset rows if they are known; empty for no rows."""
        if not rows:
            return ""
        notes = self.materials.notes
        items = list(notes.get("items") or ())
        if len(items) != batch_size(self.readings.step.batch):
            return f"{before}{numbered(rows)} of the {notes.get('rows_of', 'batch')}{after}"
        within = f", {numbered(rows)} of the batch" if after else f" ({numbered(rows)} of the batch)"
        return f"{before}dataset {numbered([items[row] for row in rows])}{within}{after}"


Judge = Callable[[Evidence], Conclusion | None]


def judge_of(
    cause: str, confidence: float, fix: str, *worlds: str, covers: tuple[str, ...] = (),
    setting: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[[Callable[[Evidence], str | bool | None]], Judge]:  # fmt: skip
    """Make a judge of a function that says why this is the cause; false or empty where it is not."""

    def made(why: Callable[[Evidence], str | bool | None]) -> Judge:
        @wraps(why)
        def judge(e: Evidence) -> Conclusion | None:
            if not (said := why(e)):
                return None
            return Conclusion(
                cause=cause, confidence=confidence, why=str(said), fix=fix, setting=setting, worlds=worlds,
                covers=covers,
            )  # fmt: skip

        return judge

    return made


def numbered(rows: Sequence[int]) -> str:
    """`rows 4, 11`."""
    named = ", ".join(map(str, rows[:8])) + (" ..." if len(rows) > 8 else "")
    return f"row{'s' if len(rows) > 1 else ''} {named}"
