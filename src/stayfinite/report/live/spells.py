"""Merge repeated events of consecutive steps: twenty vetoes in a row are one line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stayfinite.core.run_status import Happening


@dataclass(frozen=True, slots=True)
class Spell:
    """One event, or several equal ones in a row."""

    first: Happening
    last: Happening
    count: int = 1

    @property
    def steps(self) -> str:
        """`41` or `41-60`; empty if no step is known."""
        if self.first.step is None or self.last.step is None:
            return ""
        span = "" if self.first.step == self.last.step else f"-{self.last.step:,}"
        return f"{self.first.step:,}{span}"

    @property
    def times(self) -> str:
        """` x20`; empty for one."""
        return f" x{self.count:,}" if self.count > 1 else ""


def spells(happenings: Iterable[Happening]) -> list[Spell]:
    """The events in order, equal ones of consecutive steps merged."""
    found: list[Spell] = []
    for each in happenings:
        before = found[-1] if found else None
        if before is not None and _goes_on(before.last, each):
            found[-1] = Spell(before.first, each, before.count + 1)
        else:
            found.append(Spell(each, each))
    return found


def _goes_on(before: Happening, each: Happening) -> bool:
    if before.step is None or each.step != before.step + 1:
        return False
    return (before.event, before.text) == (each.event, each.text)
