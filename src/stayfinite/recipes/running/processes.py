"""One program, one process or several: what torchrun says of them, and the device of each."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.recipes.running.place import choose_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this process stands."""

    device: torch.device
    rank: int = 0
    count: int = 1

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


@contextmanager
def place_of_process(asked: str) -> Iterator[Place]:
    """The place of this process; within, the processes that torchrun started know each other."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Place(device=choose_device(asked))
        return
    device = choose_device(asked)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    joined = not dist.is_initialized()
    if joined:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Place(device=device, rank=dist.get_rank(), count=count)
    finally:
        if joined:
            leave_the_others()


def refuse_several() -> None:
    """For a program that trains in one process; asked before the processes wait for one another.

    Raises:
        UsageError: torchrun, or whoever says so in ``WORLD_SIZE``, has started several.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count > 1:
        raise UsageError(
            f"this program trains in one process, and torchrun has started {count} (WORLD_SIZE={count})",
            fix="start it without torchrun; --accumulation makes a batch larger than one device holds",
        )


def leave_the_others() -> None:
    """Ends what the processes share; a model under DDP may still be there.

    DDP holds on to the group. Where the model dies last, the group dies with it, while Python's lock is held, and waits
    for its own thread, which may wait for that lock to let go of the last barrier: the process hangs, its work done.
    So the group is kept until the interpreter ends, and dies without the lock.
    """
    atexit.register([dist.group.WORLD].clear)
    dist.destroy_process_group()


def _silent(_: str) -> None:
    return
