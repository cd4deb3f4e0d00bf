"""Ranks under torchrun, and the device of each."""

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

from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.recipes.running.place import choose_device

Row = TypeVar("Row")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Rank and device of this process."""

    device: torch.device
    rank: int = 0
    count: int = 1
    tensor: int = 1
    """Adjacent ranks that compute each layer together on the same rows (``--tensor-parallel``)."""

    @property
    def row_rank(self) -> int:
        """Index of this process's tensor-parallel group."""
        return self.rank // self.tensor

    @property
    def row_ranks(self) -> int:
        """Number of groups that share the rows of a batch."""
        return self.count // self.tensor

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which prints and writes."""
        return self.rank == 0

    def voice(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """``say`` on rank 0, a no-op on the others."""
        return say if self.first else lambda _: None

    def seed(self, seed: int) -> None:
        """Seed dropout; ranks with different rows get different masks."""
        if self.count > 1:
            torch.manual_seed(seed + self.row_rank)

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()

    def from_first(self, value: Any) -> Any:
        """Rank 0's value on all ranks; plain data."""
        if self.count == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def gathered(self, value: Any) -> list[Any]:
        """The values of all ranks, on all ranks; plain data."""
        if self.count == 1:
            return [value]
        held: list[Any] = [None] * self.count
        dist.all_gather_object(held, value)
        return held

    def total(self, numbers: Sequence[float]) -> list[float]:
        if self.count == 1:
            return list(numbers)
        return [sum(each) for each in zip(*self.gathered(list(numbers)), strict=True)]

    def total_of_rows(self, numbers: Sequence[float]) -> list[float]:
        """Sum each number over all rows of a step, counting each tensor-parallel group once."""
        return [each / self.tensor for each in self.total(numbers)]

    def by_first(self, work: Callable[[], Any]) -> Any:
        """Run on rank 0 and return its result on all ranks; plain data. If it fails, all fail.

        Raises:
            StayfiniteError: raised by rank 0.
        """
        outcome: Any = None
        error: StayfiniteError | None = None
        if self.first:
            try:
                outcome = work()
            except StayfiniteError as raised:
                error = raised
        # Send only the words: the exception itself might not unpickle.
        kind, words = self.from_first((type(error), str(error)) if error is not None else (None, ""))
        if error is not None:
            raise error
        if kind is not None:
            raise kind(words)
        return self.from_first(outcome)

    def together(self, work: Callable[[], Found]) -> Found:
        """Run on every rank. If one fails, all fail, and none waits for it.

        Raises:
            UsageError: another rank failed; the message names it. A rank's own error is raised unchanged.
        """
        if self.count == 1:
            return work()
        outcome: Any = None
        error: Exception | None = None
        try:
            outcome = work()
        except Exception as raised:  # the other ranks must be told of any error
            error = raised
        failures = self.gathered(None if error is None else _in_words(error))
        if error is not None:
            raise error
        for rank, words in enumerate(failures):
            if words is not None:
                raise UsageError(f"rank {rank} failed: {words[0]}", fix=words[1])
        found: Found = outcome
        return found

    def require_alike(self, what: str, rows: Sequence[Any]) -> None:
        """Raise UsageError on every rank if the rows differ between ranks."""
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
        """Process all rows, each rank its share. Returns all results in row order on every rank.

        Arguments:
            work: returns one result per row; plain data. Not called without rows.
            size: work per row, balanced over ranks.
        """
        order = sorted(range(len(rows)), key=lambda row: size(rows[row]))
        own = order[self.rank :: self.count]
        done = self.together(lambda: list(work([rows[row] for row in own])) if own else [])
        found = {row: result for part in self.gathered(list(zip(own, done, strict=True))) for row, result in part}
        return [found[row] for row in range(len(rows))]


@contextmanager
def place_of_process(asked: str, tensor: int = 1) -> Iterator[Place]:
    """Join the process group of torchrun, if any, and yield the place of this process.

    Arguments:
        asked: the device.
        tensor: ranks that compute each layer together.

    Raises:
        UsageError: missing torchrun variables, too few GPUs, or a number of ranks not divisible by ``tensor``.
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
        # gloo as well, so that host data is exchanged without a device sync.
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Place(device=device, rank=dist.get_rank(), count=count, tensor=tensor)
    except Exception as error:
        if _peer_exited(error):
            raise _peer_error() from error
        _leave_error(error)
        raise
    finally:
        if joined:
            leave_the_others()


def leave_the_others() -> None:
    """Destroy the process group, even while a DDP model is alive.

    DDP keeps a reference to the group. If the model is freed last, the group is destroyed with the GIL held and waits
    for its own thread, which may need the GIL: the process would hang after its work. So keep the group until
    interpreter exit.
    """
    atexit.register([dist.group.WORLD].clear)
    dist.destroy_process_group()


FAILED = "stayfinite/failed"
"""Store key under which a failing rank leaves its error."""
LEFT = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused")
"""gloo's errors when another rank has exited."""


def _peer_exited(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and any(words in str(error) for words in LEFT)


def _store() -> Any:
    """torchrun's store, which outlives the ranks; None if rank 0 holds it."""
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return dist.distributed_c10d._get_default_store() if kept else None


def _leave_error(error: Exception) -> None:
    """Leave this rank's error for the ranks that wait for it."""
    with suppress(Exception):  # nobody may be listening
        if (store := _store()) is not None:
            # The first failure is the cause of the others.
            store.compare_set(FAILED, "", json.dumps([dist.get_rank(), *_in_words(error)]))


def _peer_error() -> UsageError:
    """The error for a rank that another one left, quoting its message if any."""
    with suppress(Exception):
        if (store := _store()) is not None:
            store.wait([FAILED], timedelta(seconds=5))
            rank, problem, fix = json.loads(store.get(FAILED))
            return UsageError(f"rank {rank} failed: {problem}", fix=fix)
    return UsageError("another rank has ended; this one cannot continue alone", fix="see what the other rank wrote")


def _in_words(error: Exception) -> tuple[str, str]:
    """Message and fix of an error."""
    if isinstance(error, StayfiniteError):
        return error.message, error.fix
    return f"{type(error).__name__}: {error}", "see the log of that rank"
