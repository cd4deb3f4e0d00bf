"""Ledger of skipped batches: their outcome, and how to load them again.

A batch is entered if its step was finite but refused, or was undone by a rollback. A rollback restores the weights, not
the data position, so in one process the batch is already past; a process that resumes from an older checkpoint skips it
there. Either way it returns once, at a calm moment. If its step is refused or undone again, it is given up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stayfinite.errors import StateError

VERSION = 2

Place = tuple[int, int]
"""Epoch, and batch number within it, both from 0."""


class Fate(StrEnum):
    """Outcome of a skipped batch."""

    WAITING = "waiting"
    LEARNED = "learned"
    GIVEN_UP = "given-up"


@dataclass(slots=True)
class Entry:
    """A skipped batch."""

    fate: Fate = Fate.WAITING
    items: tuple[int, ...] | None = None
    """Dataset indices in it; None if unknown."""
    came_back: bool = False
    since: int = 0
    """Accepted steps when it was skipped."""
    batch: Any = None
    """The batch itself, if it cannot be loaded again; not saved."""

    @property
    def returnable(self) -> bool:
        """Whether it waits, is not already in use, and can be obtained again."""
        waits = self.fate is Fate.WAITING and not self.came_back
        return waits and (self.items is not None or self.batch is not None)


class Ledger:
    """Skipped batches by place, in order."""

    def __init__(self) -> None:
        self._entries: dict[Place, Entry] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._entries

    def __iter__(self) -> Iterator[Place]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, place: Place) -> Entry | None:
        """Entry of a batch; None if it was never skipped."""
        return self._entries.get(place)

    def pass_over(
        self, place: Place, items: tuple[int, ...] | None = None, batch: Any = None, *, since: int = 0
    ) -> None:
        """Enter a batch; one that already returned is given up."""
        entry = self._entries.setdefault(place, Entry(items=items, batch=batch, since=since))
        if entry.came_back:
            entry.fate, entry.batch = Fate.GIVEN_UP, None

    def give_up(self, place: Place) -> None:
        entry = self._entries.setdefault(place, Entry())
        entry.fate, entry.batch = Fate.GIVEN_UP, None

    def next_return(self, before: float = math.inf) -> Place | None:
        """First waiting batch that can be obtained and was skipped at ``before`` accepted steps or earlier."""
        waiting = (place for place, entry in self._entries.items() if entry.returnable and entry.since <= before)
        return next(waiting, None)

    def counts(self) -> dict[Fate, int]:
        """Number of batches by fate."""
        return {fate: sum(entry.fate is fate for entry in self._entries.values()) for fate in Fate}

    def merge(self, other: Ledger) -> None:
        """Add the entries of another ledger; existing ones stay."""
        for place, entry in other._entries.items():
            self._entries.setdefault(place, entry)

    def state_dict(self) -> dict[str, Any]:
        batches = [
            {
                "epoch": epoch,
                "batch": number,
                "fate": str(entry.fate),
                "items": None if entry.items is None else list(entry.items),
                "came_back": entry.came_back,
                "since": entry.since,
            }
            for (epoch, number), entry in self._entries.items()
        ]
        return {"version": VERSION, "batches": batches}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Ledger:
        """Rebuild what ``state_dict`` returned.

        Raises:
            StateError: not a ledger.
        """
        ledger = cls()
        try:
            for each in state["batches"]:
                items = None if each["items"] is None else tuple(map(int, each["items"]))
                fate = Fate(each["fate"])
                # One in use at that time must return again.
                came_back = bool(each["came_back"]) and fate is not Fate.WAITING
                entry = Entry(fate, items, came_back, int(each["since"]))
                ledger._entries[int(each["epoch"]), int(each["batch"])] = entry
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"not a saved ledger: {error}", fix="pass what Ledger.state_dict() returned") from error
        return ledger
