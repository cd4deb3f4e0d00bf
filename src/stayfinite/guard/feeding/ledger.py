"""The batches that are to be passed over: those that led to a rollback.

A rollback takes the weights back and not the data, so within one process the guilty batches are behind it anyway. The
ledger is for the next process: one that resumes from a checkpoint older than the rollback meets them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stayfinite.errors import StateError

VERSION = 1

Place = tuple[int, int]
"""Epoch and number of the batch within it, both from 0."""


class Ledger:
    """A set of places in the data, kept in order."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._places = dict.fromkeys(places)

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def add(self, places: Iterable[Place]) -> None:
        """Enter batches; those already there stay where they are."""
        self._places.update(dict.fromkeys(places))

    def state_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"version": VERSION, "batches": [list(place) for place in self._places]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Enter what was saved, beside what is there: a batch once found guilty stays so."""
        try:
            places = [(int(epoch), int(batch)) for epoch, batch in state["batches"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"this is not a ledger: {error}", fix="pass what Ledger.state_dict() returned") from error
        self.add(places)
