"""The loop's loaders, in the order in which ``guard.batches`` met them; and which batch went into which step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stayfinite.errors import LoaderFailed, StateError
from stayfinite.guard.feeding.batches import Batches, Handed, Supply
from stayfinite.guard.feeding.ledger import Fate, Ledger

VERSION = 1

LONGEST_TRAIL = 65_536
"""Batches that are remembered in case they led to trouble; more than any rollback goes back."""

CALM = 32
"""Steps that have to be accepted after a batch was passed over before it comes back."""

MOST_UNLEARNED = 100_000
"""Rows that are remembered as not learned from."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A batch that went into a step."""

    step: int
    loader: int
    handed: Handed


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlearned:
    """What a run has not learned from, for its summary."""

    rows: tuple[int, ...] = ()
    """Items of the data set, where they are known."""
    of_rows: int = 0
    """Items that there are."""
    batches: int = 0
    """Batches that were passed over and have not come back."""
    of_batches: int = 0
    """Batches that were handed out."""


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
        self._handed: deque[tuple[int, Handed]] = deque(maxlen=LONGEST_TRAIL)
        self._trail: deque[Trained] = deque(maxlen=LONGEST_TRAIL)
        """Each batch that was trained on since the last known-good state."""
        self._accepted = 0
        """Steps accepted so far."""
        self._unlearned: set[int] = set()
        """Items of the first loader that were in a step that was refused or undone, and in none that was taken."""
        self.in_doubt = False
        """Whether an unusual step is on probation, so that nothing else unusual should happen."""

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
            handed=lambda handed: self._hand(number, handed),
            stop=self._stop,
            calm=lambda: None if self.in_doubt else self._accepted - CALM,
        )
        self._wrapped.append((loader, batches))
        if number < len(self._saved):
            batches.load_state_dict(self._saved[number])
        return batches

    def trained(self, step: int) -> None:
        """What was handed out since the last call went into this step."""
        self._trail.extend(Trained(step, number, handed) for number, handed in self._handed)
        self._handed.clear()

    def accepted(self, step: int) -> None:
        """The step was taken: its batches are learned from, those that had come back among them."""
        self._accepted += 1
        for each in self._of(step):
            each.handed.batch = None
            entry = self._ledger(each.loader).entry(each.handed.place)
            if entry is not None and entry.came_back:
                entry.fate, entry.batch = Fate.LEARNED, None
            if each.loader == 0 and self._unlearned and each.handed.items is not None:
                self._unlearned.difference_update(each.handed.items)

    def refused(self, step: int, *, finite: bool) -> None:
        """The step was not taken. Where it was finite, its batches come back later."""
        for each in self._of(step):
            self._forget(each)
            ledger, handed = self._ledger(each.loader), each.handed
            if finite:
                ledger.pass_over(handed.place, handed.items, handed.batch, since=self._accepted)
            elif handed.place in ledger:
                ledger.give_up(handed.place)
            handed.batch, handed.bad = None, not finite

    def proved(self, step: int) -> None:
        """Nothing up to this step will ever be called guilty."""
        while self._trail and self._trail[0].step <= step:
            self._trail.popleft()

    def pass_over(self, step: int) -> int:
        """All later steps were undone: enter their batches in the ledger; returns how many."""
        undone = [each for each in self._trail if each.step > step]
        for each in undone:
            self._forget(each)
            ledger, handed = self._ledger(each.loader), each.handed
            if (entry := ledger.entry(handed.place)) is not None and entry.fate is Fate.LEARNED:
                entry.fate = Fate.WAITING
            if handed.bad:
                ledger.give_up(handed.place)
            else:
                ledger.pass_over(handed.place, handed.items, since=self._accepted)
        self._trail.clear()
        return len(undone)

    def unlearned(self) -> Unlearned:
        """What the run has not learned from so far."""
        if not self._wrapped:
            return Unlearned()
        first = self._wrapped[0][1]
        missing = sum(
            count for ledger in self._ledgers for fate, count in ledger.counts().items() if fate is not Fate.LEARNED
        )
        return Unlearned(
            rows=tuple(sorted(self._unlearned)),
            of_rows=first.rows,
            batches=missing,
            of_batches=sum(batches.count for _, batches in self._wrapped),
        )

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
        """The batches that were passed over, as plain data."""
        return {
            "version": VERSION,
            "loaders": [ledger.state_dict() for ledger in self._ledgers],
            "accepted": self._accepted,
            "unlearned": sorted(self._unlearned),
        }

    def load_ledger(self, state: Mapping[str, Any]) -> None:
        """Pass over what was saved, beside what is passed over already. Nothing is changed if it does not fit."""
        ledgers = read_ledgers(state)
        for number, ledger in enumerate(ledgers):
            self._ledger(number).merge(ledger)
        self._accepted = max(self._accepted, int(state.get("accepted", 0)))
        self._unlearned |= set(map(int, state.get("unlearned", ())))

    def _of(self, step: int) -> list[Trained]:
        # The newest stand at the end, and a step is heard of soon.
        found: list[Trained] = []
        for each in reversed(self._trail):
            if each.step < step:
                break
            if each.step == step:
                found.append(each)
        return found[::-1]

    def _forget(self, each: Trained) -> None:
        if each.loader == 0 and each.handed.items is not None and len(self._unlearned) < MOST_UNLEARNED:
            self._unlearned.update(each.handed.items)

    def _ledger(self, number: int) -> Ledger:
        while len(self._ledgers) <= number:
            self._ledgers.append(Ledger())
        return self._ledgers[number]

    def _hand(self, number: int, handed: Handed) -> None:
        # A loop that evaluates does so without gradients; its batches are no part of the training.
        if torch.is_grad_enabled():
            self._handed.append((number, handed))


def read_ledgers(state: Mapping[str, Any]) -> list[Ledger]:
    """The ledgers that ``Loaders.ledger`` wrote, one a loader."""
    saved = state.get("loaders")
    if not isinstance(saved, list):
        raise StateError("not a saved ledger: it has no list of loaders", fix="pass what guard.state_dict() returned")
    return [Ledger.from_state(each) for each in saved]
