"""What a conclusion is, and what it is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stayfinite.autopsy.conclusions.readings import Readings
from stayfinite.autopsy.steps.batch_parts import batch_size
from stayfinite.autopsy.steps.step import Outcome
from stayfinite.autopsy.worlds.worlds import Materials

UNDECIDED_SPIKE = {"gradient-spike": "exploding-gradient", "loss-spike": "loss-diverging"}
"""What a finite spike is called where nothing is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """A cause, how sure it is, and the change that is to help."""

    cause: str
    """A rule's slug; empty when nothing is wrong."""
    confidence: float
    why: str
    """One sentence, with numbers."""
    fix: str
    setting: Mapping[str, Any] = field(default_factory=dict)
    worlds: tuple[str, ...] = ()
    """Worlds in which a change was tried, the best first: the first finite one verifies the fix."""
    covers: tuple[str, ...] = ()
    """Those of them whose change is what ``fix`` says; without any, the first."""

    def text(self, world: str, remedy: str) -> str:
        """The fix in words, which speak of what was verified: the world, and what a person would do to live in it."""
        if not world or world in (self.covers or self.worlds[:1]):
            return self.fix
        return f"{remedy}; better, but not proved by re-run: {self.fix}"


@dataclass(frozen=True)
class Evidence:
    """Everything that is known when a conclusion is drawn."""

    readings: Readings
    outcomes: Mapping[str, Outcome]
    """By the world's name."""
    is_good: Mapping[str, bool]
    rows: list[int]
    """Rows that are bad by themselves, and without which the step is good."""
    materials: Materials
    reached: float | None = None
    """The largest magnitude that the origin's module puts out in fp32."""
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the world's name, the modules that it changed."""

    def good(self, world: str) -> bool:
        """Whether a world was run and came out good."""
        return self.is_good.get(world, False)

    def bad(self, world: str) -> bool:
        """Whether a world was run and came out bad."""
        return world in self.is_good and not self.is_good[world]

    @property
    def finite_spike(self) -> bool:
        """Whether the step, run again, is finite and still far above the others."""
        same = self.outcomes.get("same")
        return same is not None and same.finite and self.bad("same")

    @property
    def suspects(self) -> list[int]:
        """Guilty rows, or else those that the trace points at; none where it points at all of them."""
        rows = self.rows or self.readings.rows
        return [] if len(rows) == batch_size(self.readings.step.batch) else rows


def in_rows(rows: Sequence[int], before: str = " (", after: str = ")") -> str:
    """` (rows 4, 11)`; nothing when there are none."""
    if not rows:
        return ""
    named = ", ".join(map(str, rows[:8])) + (" ..." if len(rows) > 8 else "")
    return f"{before}row{'s' if len(rows) > 1 else ''} {named}{after}"
