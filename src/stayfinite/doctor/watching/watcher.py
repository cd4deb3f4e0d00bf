"""Watch a program train through torch hooks."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stayfinite.doctor.record import LoaderSeen, Program, fingerprint, tensors_in
from stayfinite.doctor.replay import playing
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching.calls import CallWatcher
from stayfinite.doctor.watching.losses import LossWatcher
from stayfinite.doctor.watching.notes import Notes, Watching, safely
from stayfinite.doctor.watching.rates import RateWatcher
from stayfinite.doctor.watching.steps import OnBad, StepWatcher

MOST_PRINTS = 400
MOST_DRAWN = 4


class BatchWatcher(Watching):
    """Records loaders and their batches."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._loader_of: dict[int, LoaderSeen] = {}

    def attach(self, stand_ins: StandIns) -> None:
        self.after(stand_ins, DataLoader, "__iter__", self._begin_epoch)
        stand_ins.put(_BaseDataLoaderIter, "__next__", self.next_batch)

    @safely
    def _begin_epoch(self, iterator: Any, loader: Any) -> None:
        seen = self.program.loaders.setdefault(id(loader), LoaderSeen(loader))
        seen.epochs += 1
        seen.in_epoch = 0
        self._loader_of[id(iterator)] = seen

    def next_batch(self, original: Any, iterator: Any) -> Any:
        if playing.drawn is not None and playing.on and id(iterator) in playing.drawn:
            return playing.drawn[id(iterator)]
        batch = original(iterator)
        self._note_batch(iterator, batch)
        return batch

    @safely
    def _note_batch(self, iterator: Any, batch: Any) -> None:
        seen = self._loader_of.get(id(iterator))
        self.notes.drawn[id(iterator)] = batch
        if len(self.notes.drawn) > MOST_DRAWN:
            self.notes.drawn.pop(next(iter(self.notes.drawn)))
        if seen is None:
            return
        self.notes.reading = seen
        seen.batches += 1
        seen.in_epoch += 1
        seen.last = batch
        if len(seen.prints) < MOST_PRINTS:
            seen.prints.append(tuple(fingerprint(t) for t in tensors_in(batch)[:2]))
        self.notes.take_batch()


class Watcher:
    """All watchers of a program.

    Arguments:
        on_bad: called once, at the first non-finite step, before its weights change.
        guard: refuse non-finite steps.
        strict: end the program at the first one.
    """

    def __init__(self, on_bad: OnBad | None = None, *, guard: bool = False, strict: bool = False) -> None:
        self.notes = Notes()
        self.steps = StepWatcher(self.notes, on_bad, guard=guard, strict=strict)
        self._watchers = (
            self.steps, RateWatcher(self.notes, self.steps), BatchWatcher(self.notes), CallWatcher(self.notes),
            LossWatcher(self.notes),
        )  # fmt: skip
        self._stand_ins = StandIns()

    @property
    def program(self) -> Program:
        return self.notes.program

    def attach(self) -> None:
        for each in self._watchers:
            each.attach(self._stand_ins)

    def detach(self) -> None:
        self._stand_ins.off()
