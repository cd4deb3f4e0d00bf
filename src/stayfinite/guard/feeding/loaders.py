"""The loop's loaders, in the order in which ``guard.batches`` met them; and which batch went into which step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from stayfinite.errors import LoaderFailed, StateError
from stayfinite.guard.feeding.batches import Batches, Supply
from stayfinite.guard.feeding.ledger import Ledger, Place

VERSION = 1

LONGEST_TRAIL = 65_536
"""Batches that are remembered in case they led to trouble; more than any rollback goes back."""


class Loaders:
    """Knows every loader's position, which batches are passed over, and which ones led to the present step.

    Arguments are those of :class:`Batches`.
    """

    def __init__(
        self,
        *,
        max_errors: int,
        tell: Callable[[str, dict[str, Any]], None],
        agree: Callable[[Supply], Supply],
        stop: Callable[[LoaderFailed], LoaderFailed],
    ) -> None:
        self._max_errors, self._tell, self._agree, self._stop = max_errors, tell, agree, stop
        self._wrapped: list[tuple[Iterable[Any], Batches]] = []
        self._ledgers: list[Ledger] = []
        self._saved: Sequence[Mapping[str, Any]] = ()
        """Positions of a resumed run, also for loaders that are yet to come."""
        self._handed: deque[tuple[int, Place]] = deque(maxlen=LONGEST_TRAIL)
        self._trail: deque[tuple[int, int, Place]] = deque(maxlen=LONGEST_TRAIL)
        """Step, loader and place of each batch that was trained on since the last known-good state."""

    def wrap(self, loader: Iterable[Any]) -> Batches:
        """The batches of a loader; for the same loader always the same object."""
        for known, batches in self._wrapped:
            if known is loader:
                return batches
        number = len(self._wrapped)
        batches = Batches(
            loader,
            ledger=self._ledger(number),
            max_errors=self._max_errors,
            tell=self._tell,
            agree=self._agree,
            handed=lambda place: self._hand(number, place),
            stop=self._stop,
        )
        self._wrapped.append((loader, batches))
        if number < len(self._saved):
            batches.load_state_dict(self._saved[number])
        return batches

    def trained(self, step: int) -> None:
        """What was handed out since the last call went into this step."""
        self._trail.extend((step, *each) for each in self._handed)
        self._handed.clear()

    def proved(self, step: int) -> None:
        """Nothing up to this step will ever be called guilty."""
        while self._trail and self._trail[0][0] <= step:
            self._trail.popleft()

    def pass_over(self, step: int) -> int:
        """Enter all batches of later steps in the ledger; returns how many."""
        guilty = [each for each in self._trail if each[0] > step]
        for _, number, place in guilty:
            self._ledger(number).add([place])
        self._trail.clear()
        return len(guilty)

    @property
    def positions(self) -> list[dict[str, Any]]:
        """Where each loader stands."""
        return [batches.state_dict() for _, batches in self._wrapped]

    def stand_at(self, positions: Sequence[Mapping[str, Any]]) -> None:
        """Continue from saved positions, given to the loaders in the order in which they are met."""
        self._saved = positions
        for (_, batches), position in zip(self._wrapped, positions, strict=False):
            batches.load_state_dict(position)

    def ledger(self) -> dict[str, Any]:
        """The batches that are passed over, as plain data."""
        return {"version": VERSION, "loaders": [ledger.state_dict() for ledger in self._ledgers]}

    def load_ledger(self, state: Mapping[str, Any]) -> None:
        """Pass over what was saved, beside what is passed over already. Nothing is changed if it does not fit."""
        for number, ledger in enumerate(read_ledgers(state)):
            self._ledger(number).add(ledger)

    def _ledger(self, number: int) -> Ledger:
        while len(self._ledgers) <= number:
            self._ledgers.append(Ledger())
        return self._ledgers[number]

    def _hand(self, number: int, place: Place) -> None:
        # A loop that evaluates does so without gradients; its batches are no part of the training.
        if torch.is_grad_enabled():
            self._handed.append((number, place))


def read_ledgers(state: Mapping[str, Any]) -> list[Ledger]:
    """The ledgers that ``Loaders.ledger`` wrote, one a loader."""
    saved = state.get("loaders")
    if not isinstance(saved, list):
        raise StateError("this is not a ledger: it has no list of loaders", fix="pass what guard.state_dict() returned")
    ledgers = []
    for each in saved:
        ledgers.append(Ledger())
        ledgers[-1].load_state_dict(each)
    return ledgers
