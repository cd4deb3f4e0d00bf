"""Data loader over a stream: one epoch per iteration, with a resumable position."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from stayfinite.errors import LoaderFailed, StateError
from stayfinite.recipes.streaming.stream import Spot, Stream, Stripe, lowest

VERSION = 1
AHEAD = 4
"""Batches prefetched per worker."""


class StreamLoader:
    """Batches of one rank. Each row of the stream goes to one worker of one rank.

    A run resumed with the same numbers of ranks and workers gets exactly the same batches. With others it restarts at
    the earliest unfinished window: no row is lost, some repeat.

    Arguments:
        data: hash of the data; a position in other data is refused.
        workers: reader processes; 0 reads in this one.
        pin: pin memory.
        say: told when rows repeat.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        data: str = "",
        rank: int = 0,
        ranks: int = 1,
        workers: int = 0,
        pin: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._stream = stream
        self._data = data
        self._rank, self._ranks, self._workers = rank, ranks, workers
        self._pin = pin
        self._say = say
        self._spots = [Spot()] * self._shares
        self._turn = 0
        """The stripe of this rank that gives the next batch."""

    @property
    def _shares(self) -> int:
        return max(1, self._workers)

    def __iter__(self) -> Iterator[Any]:
        epoch = self._spots[0].epoch
        return self._handed_out(self._source(), epoch, fresh=all(spot == Spot(epoch) for spot in self._spots))

    def state_dict(self) -> dict[str, Any]:
        """Position of this rank after the last batch."""
        return {
            "version": VERSION,
            "data": self._data,
            "rank": self._rank,
            "ranks": self._ranks,
            "workers": self._shares,
            "turn": self._turn,
            "spots": [list(spot) for spot in self._spots],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of a single rank; see `load_states`."""
        self.load_states([state])

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Resume from the states of all ranks of the run.

        Raises:
            StateError: invalid, or of other data. Nothing was changed.
        """
        try:
            spots = [[Spot.of(numbers) for numbers in state["spots"]] for state in states]
            shares = {(int(state["ranks"]), int(state["workers"])) for state in states}
            own = next((at for at, state in enumerate(states) if int(state["rank"]) == self._rank), None)
            other = any(state["data"] != self._data for state in states)
            turns = [int(state["turn"]) for state in states]
            if any(state["version"] != VERSION for state in states) or not all(spots) or len(shares) != 1:
                raise ValueError("from another version, or from several runs")
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"not a stream position: {error}", fix="pass what StreamLoader.state_dict() returned"
            ) from error
        if other:
            raise StateError(
                "the checkpoint is from other data: files or stream settings changed",
                fix="restore the files, or start over with another --output-dir",
            )
        ((ranks, workers),) = shares
        if (ranks, workers) == (self._ranks, self._shares) and own is not None:
            self._spots, self._turn = spots[own], turns[own]
            return
        begins = lowest([spot for each in spots for spot in each])
        self._spots, self._turn = [begins] * self._shares, 0
        most = self._stream.bounds.rows
        self._say(
            f"the run had {ranks} ranks x {workers} readers, now {self._ranks} x {self._shares}: resuming at window "
            f"{begins.window} of epoch {begins.epoch}. No row is lost; up to {most:,} rows per window repeat"
        )

    def _handed_out(self, source: Iterator[Any], epoch: int, *, fresh: bool) -> Iterator[Any]:
        given = False
        for share, spot, batch in source:
            if share is None:
                raise LoaderFailed(spot, code=batch["code"], fix=batch["fix"])
            self._spots[share], self._turn, given = Spot.of(spot), (share + 1) % self._shares, True
            yield batch
        if fresh and not given:
            raise LoaderFailed(
                f"rank {self._rank} of {self._ranks} has no batch in epoch {epoch}: too few rows for {self._ranks} "
                f"ranks x {self._shares} readers",
                code="no-rows", fix="use fewer ranks, fewer --workers, or more data",
            )  # fmt: skip
        self._spots, self._turn = [Spot(epoch + 1)] * self._shares, 0

    def _source(self) -> Iterator[Any]:
        count = self._ranks * self._shares
        stripes = [Stripe(self._rank * self._shares + share, count) for share in range(self._shares)]
        # Start with the reader whose turn it is: torch polls its workers in order.
        order = [(self._turn + number) % self._shares for number in range(self._shares)]
        items = _Items(self._stream, [(share, stripes[share], self._spots[share]) for share in order])
        if not self._workers:
            return iter(items)
        return iter(
            DataLoader(
                items, batch_size=None, num_workers=self._workers, prefetch_factor=AHEAD, pin_memory=self._pin,
                worker_init_fn=_begin, collate_fn=_as_it_is,
                generator=torch.Generator(),  # draw nothing from the global generator
            )
        )  # fmt: skip


class _Items(IterableDataset[Any]):
    """One worker's data: share, position after the batch, batch."""

    def __init__(self, stream: Stream, shares: list[tuple[int, Stripe, Spot]]) -> None:
        self._stream = stream
        self._shares = shares

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        share, stripe, start = self._shares[0 if info is None else info.id]
        try:
            for spot, batch in self._stream.batches(stripe, start):
                yield share, tuple(spot), batch
        except LoaderFailed as error:
            # As plain data: an exception from a worker carries its whole traceback.
            yield None, error.message, {"code": error.code, "fix": error.fix}


def _begin(_: int) -> None:
    """One core per worker: tokenizer threads do not help, and do not survive a fork."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)


def _as_it_is(item: Any) -> Any:
    return item
