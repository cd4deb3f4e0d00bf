"""Training limited by minutes or steps: progress, and the learning rate for it."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from torch.optim import Optimizer

from stayfinite.errors import UsageError
from stayfinite.recipes.running.optimizing import decay, schedule_for, warmup_of
from stayfinite.recipes.running.processes import Place

LEAST = 0.01
"""Share of the learning rate at the first step."""

PAUSE = 4.0
"""An interval above this multiple of the usual step time is a pause, such as an evaluation."""
SHARE = 0.1
"""Share of a timed training that evaluations before its end may take."""
RECENT = 32
"""Steps that define the usual time."""


class Clock:
    """Seconds, equal on every rank: rank 0's, as of the last ``agree``.

    Arguments:
        from_first: broadcasts from rank 0; None for a single rank.
        clock: returns seconds.
    """

    def __init__(
        self, from_first: Callable[[float], float] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._from_first, self._clock = from_first, clock
        self._now: float | None = None
        self.agree()

    def __call__(self) -> float:
        return self._clock() if self._now is None else self._now

    def agree(self) -> None:
        """Read the clock. Call on every rank at the same point."""
        if self._from_first is not None:
            self._now = self._from_first(self._clock())


class EvaluationBudget:
    """Measure evaluations, and decide whether there is time for another one before the end.

    Arguments:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._each: float | None = None
        """Seconds per question in the last evaluation."""
        self._ended = clock()

    @contextmanager
    def of(self, questions: int) -> Iterator[None]:
        """Time an evaluation of this many questions."""
        began = self._clock()
        yield
        self._ended = self._clock()
        self._each = (self._ended - began) / max(1, questions)

    def affordable(self, questions: int) -> bool:
        """Whether they would take at most a tenth of the time since the last evaluation; True before the first one."""
        return self._each is None or self._each * questions <= SHARE * (self._clock() - self._ended)


class TimedSchedule:
    """A learning-rate schedule over minutes or steps, whichever ends first.

    Progress is the larger share of the two. A pause counts as one usual step, and the following steps catch up, so that
    the rate still ends with the time. The used time is part of the state: a resumed run has as much left as before.
    Loading an earlier state in the same process gives no time back.

    Arguments:
        optimizer: its learning rates are set.
        shape: linear, cosine, inverse_sqrt or constant.
        warmup: share of the training.
        minutes: from the first step; None for no limit.
        steps: None for no limit.
        clock: returns seconds.
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
        self._whole = None if minutes is None else 60 * minutes
        self._minutes = minutes
        self._steps = steps
        self._clock = clock
        self._before = 0.0
        """Seconds used by earlier processes."""
        self._since: float | None = None
        self._highest = [float(group["lr"]) for group in optimizer.param_groups]
        self._taken = 0
        self._done = 0.0
        """Progress by time, from 0 to 1."""
        self._last = 0.0
        """Seconds used at the last step."""
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._set()

    def start(self) -> None:
        """Start the clock; the first step does so, too."""
        self._since = self._clock() if self._since is None else self._since

    @property
    def seconds(self) -> float:
        """Seconds used by this and earlier processes."""
        return self._before + (0.0 if self._since is None else self._clock() - self._since)

    def left(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self._whole is None else max(0.0, self._whole - self.seconds)

    @property
    def share(self) -> float:
        """Progress, from 0 to 1."""
        by_steps = self._taken / self._steps if self._steps else 0.0
        return min(1.0, max(self._done, by_steps))

    @property
    def over(self) -> bool:
        return self._whole is not None and self.seconds >= self._whole

    def ends(self) -> bool:
        """Whether the time is over, by rank 0's clock. Call on every rank at the same point."""
        if self._whole is not None:
            getattr(self._clock, "agree", lambda: None)()
        return self.over

    def step(self) -> None:
        self.start()
        self._taken += 1
        if self._whole is not None:
            self._move(self._whole)
        self._set()

    def get_last_lr(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Steps taken, seconds used, and progress."""
        return {
            "version": 1, "taken": self._taken, "seconds": self.seconds, "done": self._done, "minutes": self._minutes,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume; used time stays used. If the minutes have changed, the rate follows the new ones.

        Accepts the state of a schedule over steps, too.
        """
        self._taken = int(state["taken"] if "taken" in state else state["last_epoch"])
        seconds = float(state.get("seconds", 0.0))
        self._before += max(0.0, seconds - self.seconds)
        self._last = max(self._last, seconds)
        if self._whole is not None:
            done = state["done"] if state.get("minutes") == self._minutes else min(1.0, seconds / self._whole)
            self._done = max(self._done, float(done))
        self._set()

    def _move(self, whole: float) -> None:
        """Advance by the time since the last step, at the pace that ends on time."""
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
        if share < self._warmup:
            factor = max(LEAST, share / self._warmup)
        else:
            done = (share - self._warmup) / max(1e-9, 1.0 - self._warmup)
            warmup = max(self._warmup, 1e-3)
            factor = decay(self._shape, done, math.sqrt(warmup / max(share, warmup)))
        for group, highest in zip(self.optimizer.param_groups, self._highest, strict=True):
            group["lr"] = highest * factor


def refuse_untimed(config: Any) -> None:
    """Raise UsageError for a warmup in steps of a training that follows the clock."""
    if config.warmup_steps is not None and config.minutes is not None:
        raise UsageError(
            "--warmup-steps and --minutes cannot be combined", fix="use --warmup-ratio 0.05 with --minutes"
        )


def timed_schedule(config: Any, optimizer: Optimizer, steps: int | None, place: Place) -> TimedSchedule:
    """The schedule of these settings over minutes or steps, by rank 0's clock."""
    warmup = warmup_of(config, steps) / steps if config.warmup_steps is not None and steps else config.warmup_ratio
    return TimedSchedule(
        optimizer, config.schedule, warmup=warmup, minutes=config.minutes, steps=steps,
        clock=Clock(place.from_first if place.count > 1 else None),
    )  # fmt: skip


def schedule_of(config: Any, optimizer: Optimizer, steps: int | None, place: Place) -> Any:
    """The schedule of these settings: over the steps, unless they have a time limit or no limit of steps."""
    if config.minutes is None and steps is not None:
        return schedule_for(optimizer, config.schedule, warmup=warmup_of(config, steps), steps=steps)
    return timed_schedule(config, optimizer, steps, place)
