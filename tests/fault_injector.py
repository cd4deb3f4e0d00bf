"""Plants real faults: in a batch, a gradient, a weight, a learning rate, a data set, a process, a disk, a checkpoint.

Every tool does what its name says to the thing it is given, and takes its chances from a generator, so that a fault can
be planted again. Used by ``tests/faults`` and ``benchmarks/chaos.py``.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

# -- in the numbers --------------------------------------------------------------------------------------------------


def poison(batch: Tensor, value: float, chance: random.Random) -> Tensor:
    """A copy of a batch with one element that is ``value``: NaN or infinity."""
    bad = batch.clone()
    bad.view(-1)[chance.randrange(bad.numel())] = value
    return bad


def spoil_gradient(model: nn.Module, value: float, chance: random.Random) -> Any:
    """From now on one element of one parameter's gradient is ``value``; returns the hook, to be removed."""
    parameter = chance.choice([each for each in model.parameters() if each.requires_grad])
    element = chance.randrange(parameter.numel())

    def hook(gradient: Tensor) -> Tensor:
        bad = gradient.clone()
        bad.view(-1)[element] = value
        return bad

    return parameter.register_hook(hook)


def flip_exponent_bit(model: nn.Module, chance: random.Random) -> str:
    """Flip one of the exponent's bits of a random weight in place; returns which, and what it has become."""
    name, parameter = chance.choice(list(model.named_parameters()))
    element, bit = chance.randrange(parameter.numel()), chance.randrange(23, 31)
    flat = parameter.data.view(-1)
    before = float(flat[element])
    flat.view(torch.int32)[element] ^= 1 << bit
    return f"bit {bit} of {name}[{element}]: {before:.4g} -> {float(flat[element]):.4g}"


@contextmanager
def learning_rate_times(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Within, every learning rate is so many times too high; what a scheduler has made of it is taken back."""
    for group in optimizer.param_groups:
        group["lr"] *= factor
    try:
        yield
    finally:
        for group in optimizer.param_groups:
            group["lr"] /= factor


class CorruptItems(Dataset[Any]):
    """A data set of which some items raise when they are read."""

    def __init__(self, dataset: Dataset[Any], items: Collection[int]) -> None:
        self._dataset, self.items = dataset, frozenset(items)

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        if index in self.items:
            raise OSError(f"item {index} cannot be read")
        return self._dataset[index]


# -- in the process --------------------------------------------------------------------------------------------------


def signal_soon(number: signal.Signals, seconds: float) -> None:
    """Send this process a signal a little later, wherever it is by then."""
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), number))
    timer.daemon = True
    timer.start()


def await_threads(name: str) -> None:
    """Wait for those of this process that have a name which begins so."""
    for thread in threading.enumerate():
        if thread.name.startswith(name):
            thread.join()


def kill_at_sync(count: int) -> None:
    """Kill this process by SIGKILL at the ``count``-th time that a file is brought to the disk: inside a checkpoint."""
    sync, calls = os.fsync, iter(range(1, count + 1))

    def fatal(descriptor: Any) -> None:
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    os.fsync = fatal


def slow_down_sync(seconds: float) -> None:
    """A slow disk: a checkpoint is under way for most of the time."""
    sync, wait = os.fsync, threading.Event()

    def slow(descriptor: Any) -> None:
        wait.wait(seconds)
        sync(descriptor)

    os.fsync = slow


# -- on the disk -----------------------------------------------------------------------------------------------------


def fill_disk(room: int) -> None:
    """From now on no file of this process grows beyond so many bytes: a write fails, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.dont_write_bytecode = True  # Python would leave half a compiled module behind, for everybody
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def empty_disk() -> None:
    """Take the full disk back."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    sys.dont_write_bytecode = False


def truncate(path: Path, chance: random.Random) -> str:
    """Cut a file off somewhere."""
    size = path.stat().st_size
    left = chance.randrange(size)
    os.truncate(path, left)
    return f"{path.name} cut off at {left} of {size} bytes"


def flip_bit(path: Path, chance: random.Random) -> str:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} of {path.name} flipped"


def replace_by_file(directory: Path) -> None:
    """Put a file where a directory was, or was to be."""
    if directory.is_dir():
        # In one move, since somebody may be writing in it.
        directory.rename(directory.with_name(f"{directory.name}-lost"))
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("not a directory\n", encoding="utf-8")
