"""Iterate any loader with a position that can be saved and resumed, skipping broken batches.

The random state at the start of an epoch is part of the position, so a resumed epoch has the same order. Random
transforms in worker processes are the exception: a worker started in mid-epoch has drawn nothing before.

A loader with ``state_dict()`` and ``load_states(states of all ranks)`` is positioned directly, without re-reading.
``load_state_dict`` alone does not count: loaders of other libraries have it without full support.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch.utils.data import DataLoader

from stayfinite.errors import LoaderFailed, StateError
from stayfinite.guard.feeding.ledger import Fate, Ledger, Place
from stayfinite.guard.feeding.tap import tapped
from stayfinite.state.rng import capture_rng, restore_rng

VERSION = 1

REST = 2
"""Regular batches between two returned ones."""


@dataclass(slots=True)
class Handed:
    """A batch that was handed out."""

    place: Place
    items: tuple[int, ...] | None
    """Dataset indices in it; None if unknown."""
    batch: Any = None
    """The batch itself, if its indices are unknown."""
    bad: bool = False
    """Whether its step was not finite, so trying it again is useless."""


class Supply(IntEnum):
    """State of a rank's loader before a batch; the worst over all ranks counts."""

    READY = 0
    ENDED = 1
    FAILED = 2


class Batches:
    """Iterates a loader, one epoch per iteration, from the run's position.

    Arguments:
        loader: a DataLoader, or any iterable that can be iterated once per epoch.
        max_errors: batches that may fail to load; one more raises LoaderFailed.
        tell: called with event name and details for a failed or skipped batch.
        agree: takes this rank's supply and returns the worst over all ranks.
        handed: called with each batch handed out.
        calm: returns the count of accepted steps up to which skipped batches may return now; None for none.
        stop: called with the error that ends the training, before it is raised.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        ledger: Ledger,
        max_errors: int,
        tell: Callable[[str, dict[str, Any]], None],
        agree: Callable[[Supply], Supply],
        handed: Callable[[Handed], None],
        stop: Callable[[LoaderFailed], LoaderFailed],
        calm: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._loader = loader
        # Subclasses may override __iter__, so only torch's own class is rebuilt.
        tap = tapped(loader) if type(loader) is DataLoader else None
        self._source: Iterable[Any] = loader if tap is None else tap[0]
        self._tap = None if tap is None else tap[1]
        self._ledger = ledger
        self._max_errors = max_errors
        self._tell = tell
        self._agree = agree
        self._handed = handed
        self._stop = stop
        self._calm = calm
        self._rested = REST
        """Regular batches since one returned."""
        self.count = 0
        """Regular batches handed out by this process."""
        self._stateful: Any = loader if hasattr(loader, "load_states") else None
        self._generators = generators_of(loader)
        self._begun = 0
        """Epochs started in this process."""
        self._epoch = 0
        self._next = 0
        """Number of the next batch in the epoch."""
        self._errors = 0
        self._broken: set[int] = set()
        """Indices known to fail; each counts once."""
        self._rng: Any = None
        """Random state at the start of the epoch."""
        self._drawn_from: list[bytes] | None = None
        """The same for the loader's own generators."""
        self._placed = False
        """Whether the loader itself was moved to the saved position."""

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    @property
    def place(self) -> Place:
        """Epoch and number of the last batch handed out."""
        return self._epoch, self._next - 1

    def __iter__(self) -> Iterator[Any]:
        epoch = self._begun
        self._begun += 1
        if epoch < self._epoch:
            # The resumed run already finished this epoch.
            return
        if epoch > self._epoch:
            self._stand_before(epoch)
        source = self._join() if self._next else self._begin()
        while True:
            while self._rested >= REST and (returned := self._next_return()) is not None:
                self._rested = 0
                yield returned[0]
            if (batch := self._fetch(source)) is None:
                break
            self._next += 1
            self._rested += 1
            self.count += 1
            self._handed(self._as_handed(self.place, batch[0]))
            yield batch[0]
        # Skipped batches that still wait have no later turn in this epoch.
        while (returned := self._next_return()) is not None:
            yield returned[0]
        self._stand_before(epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """The position, with the random state at the start of the epoch."""
        return {
            "version": VERSION,
            "epoch": self._epoch,
            "next": self._next,
            "errors": self._errors,
            "broken": sorted(self._broken),
            "rng": self._rng,
            "generators": self._generator_states() if self._drawn_from is None else self._drawn_from,
            "rested": self._rested,
            **({"loader": self._stateful.state_dict()} if self._stateful is not None else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved position; the next iteration continues from there."""
        try:
            epoch, number, errors = int(state["epoch"]), int(state["next"]), int(state["errors"])
            broken = {int(item) for item in state["broken"]}
            rng, generators = state["rng"], [bytes(each) for each in state["generators"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"not a saved data position: {error}", fix="pass what Batches.state_dict() returned"
            ) from error
        self._begun = 0
        self._epoch, self._next, self._errors, self._rng = epoch, number, errors, rng
        self._broken = broken
        self._rested = int(state.get("rested", REST))
        self._drawn_from = generators if number else None
        self._set_generators(generators)
        if self._stateful is not None and "loader" in state:
            self._stateful.load_states(state.get("everyone") or [state["loader"]])
            self._placed = True

    def _stand_before(self, epoch: int) -> None:
        self._epoch, self._next, self._rng, self._drawn_from = epoch, 0, None, None

    def _begin(self) -> Iterator[Any]:
        self._rng, self._drawn_from = capture_rng(), self._generator_states()
        return iter(self._source)

    def _join(self) -> Iterator[Any]:
        """Resume an interrupted epoch at its next batch; the random state is left unchanged."""
        present = capture_rng()
        if self._rng is not None:
            restore_rng(self._rng)
        if self._tap is not None:
            self._tap.skip_next(self._next)
            source = iter(self._source)
            self._tap.prime()
        else:
            source = iter(self._source)
            for _ in range(0 if self._placed else self._next):
                try:
                    next(source)
                except StopIteration:
                    break
                except Exception:  # it was already reported when it failed the first time
                    continue
        restore_rng(present)
        return source

    @property
    def rows(self) -> int:
        """Size of the dataset; 0 if unknown."""
        try:
            return len(self._loader.dataset) if isinstance(self._loader, DataLoader) else 0  # type: ignore[arg-type]
        except TypeError:
            return 0

    def _as_handed(self, place: Place, batch: Any) -> Handed:
        items = self._tap.items_of(place[1]) if self._tap is not None else []
        if items and all(isinstance(item, int) for item in items):
            return Handed(place, tuple(items))
        return Handed(place, None, batch)

    def _next_return(self) -> tuple[Any] | None:
        """A skipped batch in a 1-tuple if one is due, else None; the same on every rank."""
        if (before := self._calm()) is None or (place := self._ledger.next_return(before)) is None:
            return None
        entry = self._ledger.entry(place)
        assert entry is not None
        entry.came_back = True
        found: tuple[Any] | None = None
        try:
            found = (entry.batch if entry.items is None else self._load(entry.items),)
        except Exception as error:  # datasets may raise anything
            self._tell("return-failed", {"epoch": place[0], "batch": place[1], "error": f"{error}"[:200]})
        if self._agree(Supply.READY if found is not None else Supply.ENDED) is not Supply.READY or found is None:
            entry.fate, entry.batch = Fate.GIVEN_UP, None
            return None
        self._tell("returned", {"epoch": place[0], "batch": place[1]})
        self._handed(Handed(place, entry.items, entry.batch))
        return found

    def _load(self, items: tuple[int, ...]) -> Any:
        """Load these indices as the loader would."""
        loader: Any = self._loader
        if loader.batch_sampler is None:
            return loader.collate_fn(loader.dataset[items[0]])
        several = getattr(loader.dataset, "__getitems__", None)
        rows = several(list(items)) if callable(several) else [loader.dataset[item] for item in items]
        return loader.collate_fn(rows)

    def _generator_states(self) -> list[bytes]:
        return [bytes(each.get_state().tolist()) for each in self._generators]

    def _set_generators(self, states: list[bytes]) -> None:
        for generator, state in zip(self._generators, states, strict=False):
            generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    def _fetch(self, source: Iterator[Any]) -> tuple[Any] | None:
        """The next batch that loads, in a 1-tuple; None when the epoch is over on every rank."""
        failure: Exception | None = None
        batch: tuple[Any] | None = None
        while batch is None:
            try:
                found = next(source)
            except StopIteration:
                break
            except LoaderFailed as error:  # the loader itself cannot continue
                failure = error
                break
            except Exception as error:  # datasets may raise anything
                self._report(error)
                if self._errors > self._max_errors:
                    failure = error
                    break
                self._next += 1
                continue
            # Before the ranks agree, so each rank agrees once per batch.
            if (self._epoch, self._next) in self._ledger:
                self._tell("passed-over", {"epoch": self._epoch, "batch": self._next})
                self._next += 1
                continue
            batch = (found,)
        supply = Supply.FAILED if failure is not None else Supply.READY if batch is not None else Supply.ENDED
        agreed = self._agree(supply)
        if isinstance(failure, LoaderFailed):
            raise self._stop(failure)
        if failure is not None:
            raise self._stop(
                LoaderFailed(
                    f"{self._errors} batches failed to load, the last at epoch {self._epoch}, batch {self._next}: "
                    f"{type(failure).__name__}: {failure}",
                    code="loader-failed",
                    fix="repair or drop the rows named in events.jsonl, or raise Policy.max_loader_errors",
                )
            ) from failure
        if agreed is Supply.FAILED:
            raise self._stop(
                LoaderFailed(
                    f"the loader of another rank failed at epoch {self._epoch}, batch {self._next}",
                    code="loader-failed",
                    fix="see that rank's log",
                )
            )
        if agreed is Supply.ENDED and batch is not None:
            self._tell("uneven-loaders", {"epoch": self._epoch, "batch": self._next})
            batch = None
        return batch

    def _report(self, error: Exception) -> None:
        """Report a failed batch; count it unless all its broken indices are known from an earlier epoch."""
        items: list[Any] = []
        if self._tap is not None and isinstance(self._loader, DataLoader):
            items = _guilty(self._loader.dataset, self._tap.items_of(self._next))
        # A worker's error includes its traceback: the last line is the message or, for our errors, the fix.
        said = [line.strip() for line in f"{error}".splitlines() if line.strip()]
        words = next((line for line in reversed(said) if not line.startswith("fix: ")), "")
        what = words if words.startswith(type(error).__name__) else f"{type(error).__name__}: {words}"
        known = {item for item in items if isinstance(item, int)}
        # An index that is not a number cannot be recognized, so it counts each time.
        self._errors += not known or not known <= self._broken
        self._broken |= known
        self._tell("loader-error", {"epoch": self._epoch, "batch": self._next, "items": items, "error": what})


def generators_of(loader: object) -> list[torch.Generator]:
    """Generators from which a loader draws its order."""
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    owners = (loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
    found = [getattr(owner, "generator", None) for owner in owners]
    return list(dict.fromkeys(each for each in found if isinstance(each, torch.Generator)))


def _guilty(dataset: Any, items: list[Any]) -> list[Any]:
    """Indices that fail on their own; all of them if none does."""
    present = capture_rng()
    failing = []
    for item in items:
        try:
            dataset[item]
        except Exception:  # datasets may raise anything
            failing.append(item)
    restore_rng(present)
    return failing or items
