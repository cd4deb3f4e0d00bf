"""One program, one process or several: what torchrun says of them, and the device of each."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.recipes.running.place import choose_device

Row = TypeVar("Row")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this process stands."""

    device: torch.device
    rank: int = 0
    count: int = 1
    tensor: int = 1
    """Ranks that compute each layer together (``--tensor-parallel``): next to each other, with the same rows."""

    @property
    def row_rank(self) -> int:
        """This process's number among those that have other rows."""
        return self.rank // self.tensor

    @property
    def row_ranks(self) -> int:
        """Among how many the rows of a batch are shared out."""
        return self.count // self.tensor

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.rank == 0

    def voice(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """``say`` in the first process, silence in the others."""
        return say if self.first else _silent

    def shared(self, model: nn.Module) -> nn.Module:
        """The model as it is called in training: under DDP where there are several processes."""
        if self.count == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel

        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices)

    def seed(self, seed: int) -> None:
        """Random numbers for dropout: those with other rows have others, and would else drop the same of each."""
        if self.count > 1:
            torch.manual_seed(seed + self.row_rank)

    def wait(self) -> None:
        """Until every process has come here."""
        if self.count > 1:
            dist.barrier()

    def from_first(self, value: Any) -> Any:
        """What the first process has, in all of them; plain data."""
        if self.count == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def gathered(self, value: Any) -> list[Any]:
        """What each process has, in all of them, by rank; plain data."""
        if self.count == 1:
            return [value]
        held: list[Any] = [None] * self.count
        dist.all_gather_object(held, value)
        return held

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Each number added up over all processes."""
        if self.count == 1:
            return list(numbers)
        return [sum(each) for each in zip(*self.gathered(list(numbers)), strict=True)]

    def total_of_rows(self, numbers: Sequence[float]) -> list[float]:
        """Each number added up over all rows of a step, which processes that compute together all have."""
        return [each / self.tensor for each in self.total(numbers)]

    def by_first(self, work: Callable[[], Any]) -> Any:
        """What the first process computes, in all of them; plain data. Where it fails, all fail alike.

        Raises:
            StayfiniteError: the first process raised it.
        """
        outcome: Any = None
        error: StayfiniteError | None = None
        if self.first:
            try:
                outcome = work()
            except StayfiniteError as raised:
                error = raised
        # The words alone are sent: an error that is raised here should not need to be unpacked there.
        kind, words = self.from_first((type(error), str(error)) if error is not None else (None, ""))
        if error is not None:
            raise error
        if kind is not None:
            raise kind(words)
        return self.from_first(outcome)

    def together(self, work: Callable[[], Found]) -> Found:
        """What every process computes for itself. Where one of them fails, all fail, and none waits for it.

        Raises:
            UsageError: another process failed; the message names it. Its own error is raised as it is.
        """
        if self.count == 1:
            return work()
        outcome: Any = None
        error: Exception | None = None
        try:
            outcome = work()
        except Exception as raised:  # whatever it is, the others must hear of it
            error = raised
        heard = self.gathered(None if error is None else _in_words(error))
        if error is not None:
            raise error
        for rank, words in enumerate(heard):
            if words is not None:
                raise UsageError(f"rank {rank} failed: {words[0]}", fix=words[1])
        found: Found = outcome
        return found

    def require_alike(self, what: str, rows: Sequence[Any]) -> None:
        """Refuse rows that are not the same in every process: each takes its share of all of them.

        Raises:
            UsageError: in every process, where they differ.
        """
        if self.count == 1:
            return
        mark = sha256()
        for row in rows:
            mark.update(repr(row).encode())
        seen = self.gathered((len(rows), mark.hexdigest()))
        other = next((rank for rank, each in enumerate(seen) if each != seen[0]), None)
        if other is not None:
            raise UsageError(
                f"rank {other} reads other {what} than rank 0: {seen[other][0]:,} rows, rank 0 {seen[0][0]:,}",
                fix="give every rank the same files",
            )

    def shared_out(
        self, rows: Sequence[Row], work: Callable[[list[Row]], Sequence[Found]], *, size: Callable[[Row], int]
    ) -> list[Found]:
        """What the work makes of all rows, in their order, in every process; each process works on its part.

        Arguments:
            work: gives one result for each row; plain data. Not asked by a process that has none.
            size: how much work a row is; all have as much of it.
        """
        order = sorted(range(len(rows)), key=lambda row: size(rows[row]))
        own = order[self.rank :: self.count]
        done = self.together(lambda: list(work([rows[row] for row in own])) if own else [])
        found = {row: result for part in self.gathered(list(zip(own, done, strict=True))) for row, result in part}
        return [found[row] for row in range(len(rows))]


@contextmanager
def place_of_process(asked: str, tensor: int = 1) -> Iterator[Place]:
    """The place of this process; within, the processes that torchrun started know each other.

    Arguments:
        asked: the device.
        tensor: ranks that compute each layer together.

    Raises:
        UsageError: there should be several, and nobody says where they find each other; there are not enough cards; or
            the ranks make no whole groups of ``tensor``.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count % tensor:
        raise UsageError(
            f"--tensor-parallel {tensor} needs a multiple of {tensor} ranks, not {count}",
            fix=f"torchrun --nproc-per-node {-(-count // tensor) * tensor} -m stayfinite train ...",
        )
    if count == 1:
        yield Place(device=choose_device(asked))
        return
    device = choose_device(asked)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.type == "cuda" and here > torch.cuda.device_count():
        raise UsageError(
            f"{here} ranks on this machine, but {torch.cuda.device_count()} GPUs",
            fix=f"--nproc-per-node {torch.cuda.device_count()}, or --device cpu",
        )
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    joined = not dist.is_initialized()
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if joined and missing:
        raise UsageError(
            f"WORLD_SIZE={count} means {count} ranks, but {missing[0]} is not set",
            fix=f"torchrun --nproc-per-node {count} -m stayfinite train ..., or unset WORLD_SIZE",
        )
    if joined:
        # What is known on the host is agreed on there, and no device waits for it.
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Place(device=device, rank=dist.get_rank(), count=count, tensor=tensor)
    except Exception as error:
        if _was_left(error):
            raise _cause_elsewhere() from error
        _tell_the_others(error)
        raise
    finally:
        if joined:
            leave_the_others()


def leave_the_others() -> None:
    """Ends what the processes share; a model under DDP may still be there.

    DDP holds on to the group. Where the model dies last, the group dies with it, while Python's lock is held, and waits
    for its own thread, which may wait for that lock to let go of the last barrier: the process hangs, its work done.
    So the group is kept until the interpreter ends, and dies without the lock.
    """
    atexit.register([dist.group.WORLD].clear)
    dist.destroy_process_group()


FAILED = "stayfinite/failed"
"""Under which a rank that fails leaves its words in the store that the ranks met at."""
LEFT = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused")
"""What gloo says to who waits for a rank that has ended."""


def _was_left(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and any(words in str(error) for words in LEFT)


def _store() -> Any:
    """The store that torchrun keeps, which outlives the ranks; one that rank 0 keeps is gone with it."""
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return dist.distributed_c10d._get_default_store() if kept else None


def _tell_the_others(error: Exception) -> None:
    """Leave the words of this rank's error to those who wait for it."""
    with suppress(Exception):  # nobody may be there to hear them
        if (store := _store()) is not None:
            # The first that fails is the cause of what others say.
            store.compare_set(FAILED, "", json.dumps([dist.get_rank(), *_in_words(error)]))


def _cause_elsewhere() -> UsageError:
    """Why this rank cannot go on: another has ended, in its own words where it left any."""
    with suppress(Exception):
        if (store := _store()) is not None:
            store.wait([FAILED], timedelta(seconds=5))
            rank, problem, fix = json.loads(store.get(FAILED))
            return UsageError(f"rank {rank} failed: {problem}", fix=fix)
    return UsageError("another rank has ended; this one cannot continue alone", fix="see what the other rank wrote")


def _silent(_: str) -> None:
    return


def _in_words(error: Exception) -> tuple[str, str]:
    """What it says, and what it says to do."""
    if isinstance(error, StayfiniteError):
        return error.message, error.fix
    return f"{type(error).__name__}: {error}", "see the log of that rank"
