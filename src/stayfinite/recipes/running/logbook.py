"""What is told of a training: progress lines (loss, learning rate, speed), and experiment loggers by name."""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from stayfinite.errors import StayfiniteError
from stayfinite.integrations.loggers.live import SinkFailed, following
from stayfinite.integrations.loggers.sinks import AimSink, MlflowSink, Sink, TensorBoardSink, TrackioSink, WandbSink


class Logbook:
    """Counts steps, averages losses without a device sync, and prints every few steps.

    Arguments:
        say: receives a line.
        steps: of the whole training; None if unknown.
        every: steps between lines.
        unit: counted for the speed.
        until: returns the seconds left; None if training is not limited by time.
        total: sums numbers over all ranks, each of which keeps a logbook.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        steps: int | None,
        every: int,
        unit: str = "tokens",
        until: Callable[[], float | None] = lambda: None,
        total: Callable[[Sequence[float]], list[float]] = list,
    ) -> None:
        self._say = say
        self._steps = steps
        self._every = max(1, every)
        self._unit = unit
        self._batches: list[tuple[Tensor, float, Tensor | int]] = []
        """Loss, weight and amount of each since the last line."""
        self._parts: dict[str, list[Tensor]] = {}
        self._flops = 0.0
        self._since = time.monotonic()
        self._seconds = 0.0
        self._all_tokens = 0
        self._all_flops = 0.0
        self._nothing_printed = True
        self._until = until
        self._total = total
        self._printed_at = 0
        self._timed_steps = 0
        self.steps_taken = 0
        self.first = float("nan")
        self.last = float("nan")

    def resume(self, step: int) -> None:
        self.steps_taken = self._printed_at = step

    def add(
        self,
        loss: Tensor,
        amount: Tensor | int,
        parts: Mapping[str, Tensor] | None = None,
        flops: float = 0.0,
        weight: float = 1.0,
    ) -> None:
        """Add a batch.

        Arguments:
            amount: units in it, without padding.
            parts: components of the loss, shown separately.
            flops: its floating-point operations.
            weight: in the mean.
        """
        self._batches.append((loss.detach(), weight, amount))
        self._flops += flops
        for name, part in (parts or {}).items():
            self._parts.setdefault(name, []).append(part.detach())

    def step(self, lr: float | Tensor) -> None:
        self.steps_taken += 1
        if self._nothing_printed or not self.steps_taken % self._every:
            self._print_line(lr)

    def finish(self) -> None:
        """Include the last steps in the averages, without printing."""
        self._take()

    def _print_line(self, lr: float | Tensor) -> None:
        parts = "".join(f"  {name} {self._finite_mean(values):.4f}" for name, values in self._parts.items())
        counted = self._flops > 0
        first_step = time.monotonic() - self._since
        speed, flops = self._take()
        self._nothing_printed = False
        of = "" if self._steps is None else f" of {self._steps}"
        self._say(
            f"step {self.steps_taken:>6}{of}  loss {self.last:8.4f}{parts}  lr {float(lr):.2e}  "
            f"{speed:,.0f} {self._unit}/s" + (f"  {_flops_in_words(flops)}" if counted else "") + self._eta(first_step)
        )

    def _eta(self, first_step: float) -> str:
        """Time left, without evaluations; overestimated after the first step alone."""
        each = self._seconds / self._timed_steps if self._timed_steps else first_step
        by_steps = None if self._steps is None else (self._steps - self.steps_taken) * each
        known = [seconds for seconds in (by_steps, self._until()) if seconds is not None]
        return f"  {time_in_words(max(0.0, min(known)))} left" if known else ""

    def _take(self) -> tuple[float, float]:
        """Average what was added since the last call. Returns units and operations per second."""
        if not self._batches:
            return 0.0, 0.0
        self.last = self._finite_mean([loss for loss, _, _ in self._batches])
        tokens = int(self._total([sum(int(amount) for _, _, amount in self._batches)])[0])
        elapsed = time.monotonic() - self._since
        if not math.isfinite(self.first):
            self.first = self.last
        if not self._nothing_printed:
            # The first step is mostly setup, so it does not count for the speed.
            self._seconds, self._all_tokens = self._seconds + elapsed, self._all_tokens + tokens
            self._all_flops += self._flops
            self._timed_steps += self.steps_taken - self._printed_at
        self._printed_at = self.steps_taken
        speeds = tokens / max(elapsed, 1e-9), self._flops / max(elapsed, 1e-9)
        self._batches, self._parts, self._flops = [], {}, 0.0
        self._since = time.monotonic()
        return speeds

    def _finite_mean(self, values: list[Tensor]) -> float:
        """Mean of the finite values over all ranks; NaN if there are none."""
        held = torch.stack([value.float() for value in values]).cpu().double()
        weights = torch.tensor([weight for _, weight, _ in self._batches], dtype=torch.float64)
        finite = held.isfinite()
        added, weight = self._total([float((held * weights)[finite].sum()), float(weights[finite].sum())])
        return added / weight if weight else float("nan")

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Exclude the time within this context from the speed."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._since += time.monotonic() - began

    @property
    def rate(self) -> float:
        """Units per second, without padding."""
        return self._all_tokens / max(self._seconds, 1e-9)

    @property
    def flops_rate(self) -> float:
        """Floating-point operations per second; 0 if not counted."""
        return self._all_flops / max(self._seconds, 1e-9)


def _flops_in_words(rate: float) -> str:
    for unit, size in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate / 1e6:.1f} MFLOP/s"


def time_in_words(seconds: float) -> str:
    """Seconds in a fitting unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


EVERY = 20.0
"""Seconds between lines."""


class Progress:
    """Prints progress and time left; nothing if the work is quick.

    Arguments:
        say: receives a line.
        what: the unit, such as `questions asked`.
        clock: returns seconds.
    """

    def __init__(self, say: Callable[[str], None], what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._what, self._clock = say, what, clock
        self._began = self._printed = clock()

    def __call__(self, done: int, of: int) -> None:
        now = self._clock()
        if done < of and now - self._printed >= EVERY:
            self._printed = now
            left = (now - self._began) / done * (of - done)
            self._say(f"  {done:,} of {of:,} {self._what}, {time_in_words(left)} left")


Logger = Literal["tensorboard", "wandb", "mlflow", "aim", "trackio"]
PROJECT = "stayfinite"
"""Project in the loggers; ``WANDB_PROJECT`` overrides it for W&B."""


def sinks_of(names: Sequence[Logger], directory: Path) -> list[Sink]:
    """One sink per name, for ``following(run_dir, *sinks)``. Runs are named after their directory.

    A logger that cannot be opened (no login, no network) is skipped with a warning.

    Raises:
        MissingExtra: one is not installed.
    """
    title = directory.resolve().name
    makers: dict[Logger, Callable[[], Sink]] = {
        "tensorboard": lambda: TensorBoardSink(directory / "tensorboard"),
        "wandb": lambda: WandbSink(name=title, **_for_wandb(directory)),
        "mlflow": lambda: MlflowSink(directory, experiment=PROJECT),
        "aim": lambda: AimSink(experiment=PROJECT, name=title),
        "trackio": lambda: TrackioSink(project=PROJECT, name=title),
    }
    opened: list[Sink] = []
    for name in dict.fromkeys(names):
        try:
            opened.append(makers[name]())
        except StayfiniteError:
            raise
        except Exception as error:  # a logger may raise anything
            warnings.warn(f"{name} gets no records: {type(error).__name__}: {error}", SinkFailed, stacklevel=2)
    return opened


@contextmanager
def telling(names: Sequence[Logger], directory: Path) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Let the loggers follow the run directory; yield ``tell(step, scores)`` for other scores."""
    sinks = sinks_of(names, directory)

    def tell(step: int, scores: Mapping[str, float]) -> None:
        for sink in list(sinks):
            try:
                sink.scalars(step, {f"evaluation/{name}": value for name, value in scores.items()})
            except Exception as error:  # a logger may raise anything; training continues
                sinks.remove(sink)
                warnings.warn(f"{type(sink).__name__}: {type(error).__name__}: {error}", SinkFailed, stacklevel=2)

    with following(directory, *sinks):
        yield tell


def _for_wandb(directory: Path) -> dict[str, str]:
    """Arguments for W&B, unless its own variables set them."""
    told = {"WANDB_PROJECT": ("project", PROJECT), "WANDB_DIR": ("dir", str(directory))}
    return dict(pair for variable, pair in told.items() if not os.environ.get(variable))
