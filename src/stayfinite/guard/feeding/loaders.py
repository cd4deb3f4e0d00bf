"""The loop's loaders in the order ``guard.batches`` met them, and which batch went into which step."""

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
"""Batches to remember; more than any rollback undoes."""

CALM = 32
"""Accepted steps before a skipped batch returns."""

MOST_UNLEARNED = 100_000
"""Rows to remember as not learned."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A batch that went into a step."""

    step: int
    loader: int
    handed: Handed


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlearned:
    """Data that a run has not learned from, for its summary."""

    rows: tuple[int, ...] = ()
    """Dataset indices, if known."""
    of_rows: int = 0
    """Size of the dataset."""
    batches: int = 0
    """Skipped batches that have not returned."""
    of_batches: int = 0
    """Batches handed out."""


class Loaders:
    """Positions of all loaders, skipped batches, and the batches of recent steps.

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
        """Positions of a resumed run, including those of loaders not met yet."""
        self._handed: deque[tuple[int, Handed]] = deque(maxlen=LONGEST_TRAIL)
        self._trail: deque[Trained] = deque(maxlen=LONGEST_TRAIL)
        """Batches trained on since the last known-good state."""
        self._accepted = 0
        self._unlearned: set[int] = set()
        """Indices of the first loader in refused or undone steps only."""
        self.in_doubt = False
        """Whether an unusual step is on probation; skipped batches do not return meanwhile."""

    def wrap(self, loader: Iterable[Any]) -> Batches:
        """Batches of a loader; always the same object for the same loader."""
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
        """Assign the batches handed out since the last call to this step."""
        self._trail.extend(Trained(step, number, handed) for number, handed in self._handed)
        self._handed.clear()

    def items(self, step: int) -> list[tuple[int, ...] | None]:
        """Dataset indices of each batch of a recent step; None where unknown."""
        return [each.handed.items for each in self._of(step)]

    def accepted(self, step: int) -> None:
        """Mark the batches of an accepted step as learned, including returned ones."""
        self._accepted += 1
        for each in self._of(step):
            each.handed.batch = None
            entry = self._ledger(each.loader).entry(each.handed.place)
            if entry is not None and entry.came_back:
                entry.fate, entry.batch = Fate.LEARNED, None
            if each.loader == 0 and self._unlearned and each.handed.items is not None:
                self._unlearned.difference_update(each.handed.items)

    def refused(self, step: int, *, finite: bool) -> None:
        """Record a refused step. If it was finite, its batches return later."""
        for each in self._of(step):
            self._forget(each)
            ledger, handed = self._ledger(each.loader), each.handed
            if finite:
                ledger.pass_over(handed.place, handed.items, handed.batch, since=self._accepted)
            elif handed.place in ledger:
                ledger.give_up(handed.place)
            handed.batch, handed.bad = None, not finite

    def proved(self, step: int) -> None:
        """Forget the batches up to this step: they can no longer be blamed."""
        while self._trail and self._trail[0].step <= step:
            self._trail.popleft()

    def pass_over(self, step: int) -> int:
        """Enter the batches of all later, undone steps in the ledger; return how many."""
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
        """Data not learned from so far."""
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
        """Position of each loader."""
        return [batches.state_dict() for _, batches in self._wrapped]

    def stand_at(self, positions: Sequence[Mapping[str, Any]]) -> None:
        """Continue from saved positions, assigned to the loaders in the order they are met."""
        self._saved = positions
        for (_, batches), position in zip(self._wrapped, positions, strict=False):
            batches.load_state_dict(position)

    def state_dict(self) -> dict[str, Any]:
        """The skipped batches as plain data."""
        return {
            "version": VERSION,
            "loaders": [ledger.state_dict() for ledger in self._ledgers],
            "accepted": self._accepted,
            "unlearned": sorted(self._unlearned),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Merge a saved ledger. Nothing changes if it is invalid."""
        ledgers = read_ledgers(state)
        for number, ledger in enumerate(ledgers):
            self._ledger(number).merge(ledger)
        self._accepted = max(self._accepted, int(state.get("accepted", 0)))
        self._unlearned |= set(map(int, state.get("unlearned", ())))

    def _of(self, step: int) -> list[Trained]:
        # The newest are at the end, and steps are decided soon.
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
        # Evaluation runs without gradients; its batches are not part of the training.
        if torch.is_grad_enabled():
            self._handed.append((number, handed))


def read_ledgers(state: Mapping[str, Any]) -> list[Ledger]:
    """Read the ledgers that ``Loaders.state_dict`` returned, one per loader."""
    saved = state.get("loaders")
    if not isinstance(saved, list):
        raise StateError("not a saved ledger: it has no list of loaders", fix="pass what guard.state_dict() returned")
    return [Ledger.from_state(each) for each in saved]
