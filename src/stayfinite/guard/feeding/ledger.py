"""The batches that were passed over: what became of each, and what it takes to load it again.

A batch gets in when its step was refused although it was finite, or was undone by a rollback. A rollback takes the
weights back and not the data, so within one process such a batch is behind it; a process that resumes from an older
checkpoint meets it at its place and passes over it there. Either way it waits for a calm moment and comes back once. If
its step is refused or undone again, it is given up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stayfinite.errors import StateError

VERSION = 2

Place = tuple[int, int]
"""Epoch and number of the batch within it, both from 0."""


class Fate(StrEnum):
    """What became of a batch that was passed over."""

    WAITING = "waiting"
    LEARNED = "learned"
    GIVEN_UP = "given-up"


@dataclass(slots=True)
class Entry:
    """One such batch."""

    fate: Fate = Fate.WAITING
    items: tuple[int, ...] | None = None
    """The data set's items in it; None where they are not known."""
    came_back: bool = False
    since: int = 0
    """Steps that had been accepted when it was passed over."""
    batch: Any = None
    """The batch itself, where it cannot be loaded again; not saved."""

    @property
    def returnable(self) -> bool:
        """Whether it waits, is not under way already, and can be had again."""
        waits = self.fate is Fate.WAITING and not self.came_back
        return waits and (self.items is not None or self.batch is not None)


class Ledger:
    """Batches by their places, in the order in which they were passed over."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._entries: dict[Place, Entry] = {place: Entry() for place in places}

    def __contains__(self, place: Place) -> bool:
        return place in self._entries

    def __iter__(self) -> Iterator[Place]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, place: Place) -> Entry | None:
        """What is known of a batch; None where it was never passed over."""
        return self._entries.get(place)

    def pass_over(
        self, place: Place, items: tuple[int, ...] | None = None, batch: Any = None, *, since: int = 0
    ) -> None:
        """Enter a batch, after so many accepted steps; one that has come back already is given up."""
        entry = self._entries.setdefault(place, Entry(items=items, batch=batch, since=since))
        if entry.came_back:
            entry.fate, entry.batch = Fate.GIVEN_UP, None

    def give_up(self, place: Place) -> None:
        """This batch will not come back."""
        entry = self._entries.setdefault(place, Entry())
        entry.fate, entry.batch = Fate.GIVEN_UP, None

    def next_return(self, before: float = math.inf) -> Place | None:
        """The first batch that waits, can be had again, and was passed over before so many steps were accepted."""
        waiting = (place for place, entry in self._entries.items() if entry.returnable and entry.since <= before)
        return next(waiting, None)

    def counts(self) -> dict[Fate, int]:
        """How many there are of each fate."""
        return {fate: sum(entry.fate is fate for entry in self._entries.values()) for fate in Fate}

    def merge(self, other: Ledger) -> None:
        """Enter what another ledger holds; what is here already stays as it is."""
        for place, entry in other._entries.items():
            self._entries.setdefault(place, entry)

    def state_dict(self) -> dict[str, Any]:
        """As plain data."""
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
        """What ``state_dict`` wrote, or the plain list of places of version 1.

        Raises:
            StateError: it is none.
        """
        ledger = cls()
        try:
            for each in state["batches"]:
                if isinstance(each, Mapping):
                    items = None if each["items"] is None else tuple(map(int, each["items"]))
                    fate = Fate(each["fate"])
                    # One that was under way then has to come again.
                    came_back = bool(each["came_back"]) and fate is not Fate.WAITING
                    entry = Entry(fate, items, came_back, int(each["since"]))
                    ledger._entries[int(each["epoch"]), int(each["batch"])] = entry
                else:
                    epoch, number = each
                    ledger._entries[int(epoch), int(number)] = Entry(Fate.GIVEN_UP)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"not a saved ledger: {error}", fix="pass what Ledger.state_dict() returned") from error
        return ledger
