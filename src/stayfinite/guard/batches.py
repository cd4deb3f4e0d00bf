"""Batches of any loader, with a position that can be saved, joined in the middle, and walked past what is broken.

An epoch's random numbers are drawn when it begins, so the state they were drawn from is part of the position: a resumed
epoch has the same order as the one that was cut off. Random transforms inside worker processes are the exception: a worker
that starts in the middle of an epoch has drawn nothing before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any

from torch.utils.data import DataLoader

from stayfinite.errors import LoaderFailed, StateError
from stayfinite.guard.ledger import Ledger, Place
from stayfinite.guard.tap import tapped
from stayfinite.state.rng import capture_rng, restore_rng

VERSION = 1


class Supply(IntEnum):
    """How a rank's loader stands before a batch; over all ranks the worst one counts."""

    READY = 0
    ENDED = 1
    FAILED = 2


class Batches:
    """Iterates a loader, one epoch each time, from where the run stands.

    Arguments:
        loader: a DataLoader, or anything that can be iterated once an epoch.
        ledger: batches that are passed over.
        max_errors: so many batches may fail to load; one more raises LoaderFailed.
        tell: is told of a failed or passed over batch: event name and details.
        agree: brings the ranks to one answer; given this rank's supply, returns the worst of all.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        ledger: Ledger,
        max_errors: int,
        tell: Callable[[str, dict[str, Any]], None],
        agree: Callable[[Supply], Supply],
    ) -> None:
        self._loader = loader
        tap = tapped(loader) if isinstance(loader, DataLoader) else None
        self._source, self._tap = tap if tap is not None else (loader, None)
        self._ledger = ledger
        self._max_errors = max_errors
        self._tell = tell
        self._agree = agree
        self._begun = 0
        """Epochs that were asked for in this process."""
        self._epoch = 0
        self._next = 0
        """Number of the next batch of the epoch."""
        self._errors = 0
        self._rng: Any = None
        """Random state that the epoch's order was drawn from."""

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    @property
    def place(self) -> Place:
        """Epoch and number of the batch that was handed out last."""
        return self._epoch, self._next - 1

    def __iter__(self) -> Iterator[Any]:
        epoch = self._begun
        self._begun += 1
        if epoch < self._epoch:
            # The run that is resumed has been through this epoch.
            return
        if epoch > self._epoch:
            self._epoch, self._next, self._rng = epoch, 0, None
        source = self._join() if self._next else self._begin()
        while (batch := self._fetch(source)) is not None:
            place = (self._epoch, self._next)
            self._next += 1
            if place in self._ledger:
                self._tell("passed-over", {"epoch": place[0], "batch": place[1]})
                continue
            yield batch[0]
        self._epoch, self._next, self._rng = epoch + 1, 0, None

    def state_dict(self) -> dict[str, Any]:
        """The position, with the random state that the epoch was drawn from."""
        return {"version": VERSION, "epoch": self._epoch, "next": self._next, "errors": self._errors, "rng": self._rng}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where the saved run stood; the next iterations pass over what it had been through."""
        try:
            epoch, number, errors = int(state["epoch"]), int(state["next"]), int(state["errors"])
            rng = state["rng"]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"this is not a position in the data: {error}", fix="pass what Batches.state_dict() returned"
            ) from error
        self._begun = 0
        self._epoch, self._next, self._errors, self._rng = epoch, number, errors, rng

    def _begin(self) -> Iterator[Any]:
        self._rng = capture_rng()
        return iter(self._source)

    def _join(self) -> Iterator[Any]:
        """The epoch that was cut off, from its next batch on; leaves the random state as it found it."""
        present = capture_rng()
        if self._rng is not None:
            restore_rng(self._rng)
        if self._tap is not None:
            self._tap.skip_next(self._next)
            source = iter(self._source)
            self._tap.prime()
        else:
            source = iter(self._source)
            for _ in range(self._next):
                if next(source, None) is None:
                    break
        restore_rng(present)
        return source

    def _fetch(self, source: Iterator[Any]) -> tuple[Any] | None:
        """The next batch that loads, in a tuple; None when the epoch is over for every rank."""
        failure: Exception | None = None
        batch: tuple[Any] | None = None
        while batch is None:
            try:
                batch = (next(source),)
            except StopIteration:
                break
            except Exception as error:  # whatever a data set may raise
                self._errors += 1
                self._report(error)
                if self._errors > self._max_errors:
                    failure = error
                    break
                self._next += 1
        supply = Supply.FAILED if failure is not None else Supply.READY if batch is not None else Supply.ENDED
        agreed = self._agree(supply)
        if failure is not None:
            raise LoaderFailed(
                f"{self._errors} batches failed to load, the last at epoch {self._epoch}, batch {self._next}: "
                f"{type(failure).__name__}: {failure}",
                fix="repair or drop the items named in events.jsonl, or raise Policy.max_loader_errors",
            ) from failure
        if agreed is Supply.FAILED:
            raise LoaderFailed(
                f"the loader of another rank failed at epoch {self._epoch}, batch {self._next}; its own error says why",
                fix="see the log of the rank that failed",
            )
        if agreed is Supply.ENDED and batch is not None:
            self._tell("uneven-loaders", {"epoch": self._epoch, "batch": self._next})
            return None
        return batch

    def _report(self, error: Exception) -> None:
        items: list[int] = []
        if self._tap is not None and isinstance(self._loader, DataLoader):
            items = _guilty(self._loader.dataset, self._tap.items_of(self._next))
        details = {"epoch": self._epoch, "batch": self._next, "items": items, "error": f"{type(error).__name__}: {error}"}
        self._tell("loader-error", details)


def _guilty(dataset: Any, items: list[int]) -> list[int]:
    """Those of a batch's items that fail by themselves; all of them when none does."""
    present = capture_rng()
    failing = []
    for item in items:
        try:
            dataset[item]
        except Exception:  # whatever a data set may raise
            failing.append(item)
    restore_rng(present)
    return failing or items
