"""Judge machines by what many runs saw on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["suspect", "watch", "clear", "unknown"]

OFTEN = 2
"""Steps with differing re-runs that make a machine suspect; one may be a stray particle."""

BAD_STEPS, BAD_SHARE = 3, 0.8
"""NaN steps, and their share of all, on one of several machines that are worth watching: data moves between ranks, a
device does not.
"""


@dataclass(slots=True)
class Machine:
    """One host and device, and what was seen on it."""

    host: str
    device: str
    launches: int = 0
    ranks: set[int] = field(default_factory=set)
    """Ranks that ran on it."""
    replayed: int = 0
    """Steps run again on it."""
    transient: int = 0
    persistent: int = 0
    unsteady: int = 0
    """Launches in which its steps were never reproducible, while those of most other ranks were."""
    bad_steps: int = 0
    """Steps with NaN or infinity that started on it."""
    places: list[str] = field(default_factory=list)
    """Run and step of each mismatch."""

    @property
    def mismatches(self) -> int:
        """Steps whose re-run differed."""
        return self.transient + self.persistent

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ranks": sorted(self.ranks)}


def judge(machine: Machine, all_of_them: Sequence[Machine]) -> tuple[Verdict, str]:
    """Return the verdict on a machine and the reason."""
    if machine.persistent or machine.mismatches >= OFTEN:
        return "suspect", f"{machine.mismatches} of {machine.replayed} re-run steps differed"
    if machine.mismatches:
        return "watch", f"1 of {machine.replayed} re-run steps differed"
    if machine.unsteady:
        return "watch", "re-runs differ here, but not on other ranks"
    bad = sum(each.bad_steps for each in all_of_them)
    if len(all_of_them) > 1 and machine.bad_steps >= BAD_STEPS and machine.bad_steps >= BAD_SHARE * bad:
        return "watch", f"{machine.bad_steps} of {bad} steps with NaN or infinity began there"
    if machine.replayed:
        return "clear", f"{machine.replayed} re-run steps agree"
    return "unknown", "no step was re-run"
