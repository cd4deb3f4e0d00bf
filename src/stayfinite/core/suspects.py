"""Which machine is suspect, from what many runs on it have seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["suspect", "watch", "clear", "unknown"]

OFTEN = 2
"""So many steps that a re-run did not repeat make a machine suspect; one may be a stray particle."""

BAD_STEPS, BAD_SHARE = 3, 0.8
"""So many NaN steps, and so large a share of all of them, on one machine of several are worth watching: data goes round
between ranks, a device does not."""


@dataclass(slots=True)
class Machine:
    """One host and device, and what was seen on it."""

    host: str
    device: str
    launches: int = 0
    ranks: set[int] = field(default_factory=set)
    """The ranks that it was."""
    replayed: int = 0
    """Steps that were run again on it."""
    transient: int = 0
    persistent: int = 0
    unsteady: int = 0
    """Launches in which its steps never repeated themselves, while those of most other ranks did."""
    bad_steps: int = 0
    """Steps with NaN or infinity that began on it."""
    places: list[str] = field(default_factory=list)
    """Where mismatches were seen: run and step."""

    @property
    def mismatches(self) -> int:
        """Steps that a re-run did not repeat."""
        return self.transient + self.persistent

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"ranks": sorted(self.ranks)}


def judge(machine: Machine, all_of_them: Sequence[Machine]) -> tuple[Verdict, str]:
    """What is to be thought of a machine, and why."""
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
