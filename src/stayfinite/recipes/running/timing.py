"""A training that has so many minutes, or so many steps: how much of it is over, and the learning rate for that."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from torch.optim import Optimizer

LEAST = 0.01
"""Share of the learning rate that the first step has, which must learn something too."""

PAUSE = 4.0
"""More than so many times the usual time between two steps is a pause: an evaluation, an incident that is explained."""
SHARE = 0.1
"""Of the time of a training that has so many minutes, what evaluations in between may take."""
RECENT = 32
"""Steps whose times tell what is usual."""


class Clock:
    """Seconds, the same on every rank: those of the first, from the last time that all asked together.

    Arguments:
        from_first: gives all ranks what the first one has; None where there is one.
        clock: gives seconds.
    """

    def __init__(
        self, from_first: Callable[[float], float] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._from_first, self._clock = from_first, clock
        self._now: float | None = None
        self.agree()

    def __call__(self) -> float:
        """Seconds."""
        return self._clock() if self._now is None else self._now

    def agree(self) -> None:
        """Look at the clock. Every rank calls it, at the same place of the program."""
        if self._from_first is not None:
            self._now = self._from_first(self._clock())


class Stopwatch:
    """The time that a training has, and how much of it this process and those before it have used.

    Arguments:
        minutes: that there are, from the first step on; None for as long as it takes.
        clock: gives seconds.
    """

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.minutes = minutes
        self._clock = clock
        self._before = 0.0
        """Seconds that earlier processes used."""
        self._since: float | None = None

    def start(self) -> None:
        """The clock runs from now on, if it does not yet."""
        self._since = self._clock() if self._since is None else self._since

    @property
    def seconds(self) -> float:
        """Time used so far."""
        return self._before + (0.0 if self._since is None else self._clock() - self._since)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.minutes is not None and self.seconds >= 60 * self.minutes

    def left(self) -> float | None:
        """Seconds that are left; None where no time ends it."""
        return None if self.minutes is None else max(0.0, 60 * self.minutes - self.seconds)

    def recall(self, seconds: float) -> None:
        """So much had been used; within a process no time is given back."""
        self._before += max(0.0, seconds - self.seconds)


class Interludes:
    """How long evaluations take, and whether there is time for another one before the end.

    Arguments:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._each: float | None = None
        """Seconds for a question, in the last evaluation."""
        self._ended = clock()

    @contextmanager
    def of(self, questions: int) -> Iterator[None]:
        """Within, so many questions are asked."""
        began = self._clock()
        yield
        self._ended = self._clock()
        self._each = (self._ended - began) / max(1, questions)

    def affordable(self, questions: int) -> bool:
        """Whether so many would take a tenth at most of the time since the last evaluation; yes while nobody knows."""
        return self._each is None or self._each * questions <= SHARE * (self._clock() - self._ended)


class TimedSchedule:
    """A learning-rate schedule over whatever ends first, the minutes or the steps.

    Both are used up at an even pace, so the share that is greater is that of the end which comes first. A pause moves
    the rate no further than a usual step does; the steps that follow make up for it, each a little, so that the rate
    reaches its end with the time all the same. The time that was used is part of the state: a run that is resumed has
    as much left as it had. Going back to an earlier state within a process gives no time back.

    Arguments:
        optimizer: whose learning rate moves.
        shape: linear, cosine, inverse_sqrt or constant.
        warmup: share of the training during which the rate rises.
        minutes: that there are, from the first step on; None for as long as it takes.
        steps: that there are; None for as many as fit.
        clock: gives seconds.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        shape: str,
        *,
        warmup: float,
        minutes: float | None = None,
        steps: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.optimizer = optimizer
        self._shape = shape
        self._warmup = warmup
        self._steps = steps
        self._watch = Stopwatch(minutes, clock)
        self._highest = [float(group["lr"]) for group in optimizer.param_groups]
        self._taken = 0
        self._done = 0.0
        """Share of the schedule that the time has brought about."""
        self._last = 0.0
        """Seconds used when the last step was taken."""
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._set()

    def start(self) -> None:
        """The clock runs from now on; the first step starts it too."""
        self._watch.start()

    @property
    def seconds(self) -> float:
        """Time used so far, by this process and those before it."""
        return self._watch.seconds

    def left(self) -> float | None:
        """Seconds that are left; None where no time ends it."""
        return self._watch.left()

    @property
    def share(self) -> float:
        """How much of the training is over, from 0 to 1."""
        by_steps = self._taken / self._steps if self._steps else 0.0
        return min(1.0, max(self._done, by_steps))

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self._watch.over

    def step(self) -> None:
        """A step was taken."""
        self.start()
        self._taken += 1
        if self._watch.minutes is not None:
            self._move(60 * self._watch.minutes)
        self._set()

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Steps taken, seconds used, and how far the rate has come in them."""
        return {
            "version": 1, "taken": self._taken, "seconds": self.seconds, "done": self._done,
            "minutes": self._watch.minutes,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; time that was used stays used. Where there are other minutes now, the rate follows them.

        The state of a schedule over steps alone will do: it says how many were taken.
        """
        self._taken = int(state["taken"] if "taken" in state else state["last_epoch"])
        seconds, minutes = float(state.get("seconds", 0.0)), self._watch.minutes
        self._watch.recall(seconds)
        self._last = max(self._last, seconds)
        if minutes is not None:
            done = state["done"] if state.get("minutes") == minutes else min(1.0, seconds / (60 * minutes))
            self._done = max(self._done, float(done))
        self._set()

    def _move(self, whole: float) -> None:
        """Go on by the time since the last step, at the pace that leads to the end in what is left of the whole."""
        now = self.seconds
        took, self._last = now - self._last, now
        if took <= 0.0:
            return
        usual = median(self._recent) if self._recent else took
        counted = usual if took > PAUSE * usual else took
        self._recent.append(took)
        left = whole - now + counted
        self._done = self._done + (1.0 - self._done) * counted / left if left > counted else 1.0

    def _set(self) -> None:
        share = self.share
        factor = self._factor(share)
        for group, highest in zip(self.optimizer.param_groups, self._highest, strict=True):
            group["lr"] = highest * factor

    def _factor(self, share: float) -> float:
        if share < self._warmup:
            return max(LEAST, share / self._warmup)
        done = (share - self._warmup) / max(1e-9, 1.0 - self._warmup)
        if self._shape == "linear":
            return 1.0 - done
        if self._shape == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * done))
        if self._shape == "inverse_sqrt":
            return math.sqrt(max(self._warmup, 1e-3) / max(share, self._warmup, 1e-3))
        return 1.0
