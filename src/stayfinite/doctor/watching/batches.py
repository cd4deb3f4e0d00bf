"""Record the batches of DataLoaders."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stayfinite.doctor.record import LoaderSeen, fingerprint, tensors_in
from stayfinite.doctor.replay import playing
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching.notes import Notes, Watching, safely

MOST_PRINTS = 400
MOST_DRAWN = 4


class BatchWatcher(Watching):
    """Records loaders and their batches."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._loader_of: dict[int, LoaderSeen] = {}

    def attach(self, stand_ins: StandIns) -> None:
        stand_ins.put(DataLoader, "__iter__", self.begin_epoch)
        stand_ins.put(_BaseDataLoaderIter, "__next__", self.next_batch)

    def begin_epoch(self, original: Any, loader: Any) -> Any:
        iterator = original(loader)
        self._begin_epoch(loader, iterator)
        return iterator

    @safely
    def _begin_epoch(self, loader: Any, iterator: Any) -> None:
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
