"""Each fault at its place in the short training: ``fault_injector`` knows how, here stands when and where."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import fault_injector as inject
from faults.short_training import CHECKPOINT_STEPS, STEPS, Job, Sabotage
from stayfinite import Guard


class BadBatches(Sabotage):
    """One element of some batches is NaN or infinity, or whole batches are so many times too large."""

    def __init__(self, *where: Any, steps: Collection[int], value: float = 0.0, times: float = 0.0) -> None:
        super().__init__(*where)
        self.steps, self.value, self.times = steps, value, times

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step not in self.steps:
            return x, y
        if self.times:
            return x * self.times, y * self.times
        return (inject.poison(x, self.value, self.chance), y) if self.chance.random() < 0.5 else (
            x, inject.poison(y, self.value, self.chance))  # fmt: skip


class BadGradients(Sabotage):
    """One element of one gradient is NaN or infinity at some steps."""

    def __init__(self, *where: Any, steps: Collection[int], value: float) -> None:
        super().__init__(*where)
        self.steps, self.value = steps, value
        self._hook: Any = None

    def backward(self, step: int, model: nn.Module) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if step in self.steps:
            self._hook = inject.spoil_gradient(model, self.value, self.chance)


class FlippedWeight(Sabotage):
    """A bit of a weight's exponent flips between two steps."""

    def __init__(self, *where: Any, at: int) -> None:
        super().__init__(*where)
        self.at = at

    def after_step(self, step: int, job: Job, model: nn.Module, guard: Guard) -> None:
        if step == self.at:
            print(inject.flip_exponent_bit(model, self.chance), flush=True)


class HotLearningRate(Sabotage):
    """The learning rate is so many times too high for some steps."""

    def __init__(self, *where: Any, steps: Collection[int], times: float) -> None:
        super().__init__(*where)
        self.steps, self.times = steps, times

    def around_step(self, step: int, optimizer: torch.optim.Optimizer) -> AbstractContextManager[None]:
        return inject.learning_rate_times(optimizer, self.times) if step in self.steps else nullcontext()


class CorruptData(Sabotage):
    """Some items cannot be read."""

    def __init__(self, *where: Any, items: Collection[int]) -> None:
        super().__init__(*where)
        self.items = items

    def before_guard(self, job: Job, dataset: Dataset[Any]) -> Dataset[Any]:
        return inject.CorruptItems(dataset, self.items)


class Signalled(Sabotage):
    """A signal arrives a moment after a step, wherever the process is by then; before the end it is waited for."""

    sent = heard = False

    def __init__(self, *where: Any, at: int, number: signal.Signals, seconds: float, slow_disk: float = 0.0) -> None:
        super().__init__(*where)
        self.at, self.number, self.seconds, self.slow_disk = at, number, seconds, slow_disk

    def before_guard(self, job: Job, dataset: Dataset[Any]) -> Dataset[Any]:
        if self.slow_disk:
            inject.slow_down_sync(self.slow_disk)
        return dataset

    def after_step(self, step: int, job: Job, model: nn.Module, guard: Guard) -> None:
        # A life before this one may have come further than this, if its signal took long.
        if step >= self.at and not self.sent:
            self.sent = True
            inject.signal_soon(self.number, self.seconds)
        while self.sent and step >= STEPS - CHECKPOINT_STEPS and not self.heard:
            time.sleep(0.01)


class SavedOnSignal(Signalled):
    """The loop hears the signal, saves, and ends: what docs/many_machines.md shows."""

    def before_guard(self, job: Job, dataset: Dataset[Any]) -> Dataset[Any]:
        def hear(_number: int, _frame: FrameType | None) -> None:
            self.heard = True

        signal.signal(self.number, hear)
        return super().before_guard(job, dataset)

    def after_step(self, step: int, job: Job, model: nn.Module, guard: Guard) -> None:
        super().after_step(step, job, model, guard)
        if self.heard:
            guard.checkpoint()
            guard.close()
            raise SystemExit(128 + self.number)


class KilledInCheckpoint(Sabotage):
    """SIGKILL in the middle of writing a checkpoint."""

    def __init__(self, *where: Any, sync: int) -> None:
        super().__init__(*where)
        self.sync = sync

    def before_guard(self, job: Job, dataset: Dataset[Any]) -> Dataset[Any]:
        inject.kill_at_sync(self.sync)
        return dataset


class FullDisk(Sabotage):
    """Files cannot grow beyond ``room`` bytes for some steps."""

    def __init__(self, *where: Any, since: int, until: int, room: int) -> None:
        super().__init__(*where)
        self.since, self.until, self.room = since, until, room

    def after_step(self, step: int, job: Job, model: nn.Module, guard: Guard) -> None:
        if step == self.since:
            inject.fill_disk(self.room)
        if step == self.until:
            inject.await_threads("stayfinite checkpoint")  # what was begun while the disk was full has met it
            inject.empty_disk()

    def at_end(self) -> None:
        inject.empty_disk()


class LostDirectory(Sabotage):
    """A file stands where the run directory, or that of the checkpoints, was or was to be. Step 0: from the start."""

    def __init__(self, *where: Any, at: int, checkpoints_only: bool) -> None:
        super().__init__(*where)
        self.at, self.checkpoints_only = at, checkpoints_only

    def before_guard(self, job: Job, dataset: Dataset[Any]) -> Dataset[Any]:
        if self.at == 0:
            self._replace(job)
        return dataset

    def after_step(self, step: int, job: Job, model: nn.Module, guard: Guard) -> None:
        if step == self.at:
            self._replace(job)

    def _replace(self, job: Job) -> None:
        inject.replace_by_file(job.checkpoints if self.checkpoints_only else job.run_dir)


def none(chance: random.Random, launch: int, rank: int) -> Sabotage:
    """No fault."""
    return Sabotage(chance, launch, rank)
