"""Progress of this rank within its step, for the watchdog and for finding the slowest rank."""

import os
import socket
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from stayfinite.core.stalls import Phase
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.ranks.watchdog import Member, Watchdog, timeout_of

EVERY = 100
"""Steps per average."""

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowest:
    """The rank with the most own time over the last steps."""

    rank: int
    host: str
    share: float
    """Its own share of the step time."""

    mean_share: float
    """Mean share over all ranks."""

    step_seconds: float


class Progress:
    """Tracks a rank's progress; does nothing with a single rank.

    A rank's own time is from the end of a step to its backward pass: batch, forward pass, and the loop's other work.
    The others wait in the next collective for the rank that takes longest. It is host time: on an accelerator it shows
    slow data and a slow host, not a slow device.

    Arguments:
        directory: run directory; the watchdog runs if every rank has one.
        device: device of the guard's all-reduce.
        floor: minimum seconds without progress before the watchdog looks; 0 for no watchdog.
        launch: returns a token that all ranks share, new at each launch.
        tell: method ``tell(event, step, line, **details)``; referenced weakly.
    """

    def __init__(
        self,
        ranks: Ranks,
        directory: Path | None,
        device: torch.device,
        *,
        floor: float,
        launch: Callable[[], str],
        tell: Callable[..., None],
    ) -> None:
        self._ranks = ranks
        self._begun: float | None = None
        self._left: float | None = None
        self._own = 0.0
        self._steps = 0
        self._watchdog: Watchdog | None = None
        if ranks.world == 1:
            return
        self._members = ranks.gather(Member(socket.gethostname(), os.getpid()))
        word = ranks.from_first(launch())
        # A rank without a directory could not answer.
        if not ranks.highest(int(directory is None or not floor)) and directory is not None:
            self._watchdog = Watchdog(
                ranks.rank,
                self._members,
                directory,
                launch=word,
                floor=floor,
                timeout=timeout_of(device),
                tell=weakref.WeakMethod(tell),
            )

    def at(self, phase: Phase, step: int) -> None:
        """Record that the training reached this phase of this step."""
        if self._ranks.world == 1:
            return
        if phase is Phase.BACKWARD and self._left is not None:
            self._own += time.perf_counter() - self._left
            self._left = None
        elif phase is Phase.OUTSIDE:
            self._left = time.perf_counter()
            self._begun = self._begun or self._left
        if self._watchdog is not None:
            self._watchdog.at(phase, step)

    def slowest(self, step: int) -> Slowest | None:
        """The slowest rank, every ``EVERY`` steps, else None. A collective then."""
        self._steps += 1
        world = self._ranks.world
        if world == 1 or step % EVERY:
            return None
        now = time.perf_counter()
        steps, begun = self._steps, self._begun
        own, self._own, self._steps, self._begun = self._own, 0.0, 0, now
        if begun is None or steps < EVERY:
            return None  # the same on all ranks: they start at the same step
        highest = self._ranks.highest(int(MICROSECONDS * own / steps) * world + self._ranks.rank)
        mean_own, period = self._ranks.mean([own / steps, (now - begun) / steps])
        slowest, rank = divmod(highest, world)
        period = max(period, 1e-9)
        return Slowest(
            rank=rank,
            host=self._members[rank].host,
            share=min(1.0, slowest / MICROSECONDS / period),
            mean_share=min(1.0, mean_own / period),
            step_seconds=period,
        )

    def stop(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
