"""Progress of this rank within its step, for the watchdog and for finding the slowest rank."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable
from pathlib import Path

import torch

from stayfinite.core.stalls import Phase
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.ranks.slowest import OwnTime, Slowest
from stayfinite.guard.ranks.watchdog import Member, Watchdog, timeout_of


class Progress:
    """Tracks a rank's progress; does nothing with a single rank.

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
        self._own = OwnTime(ranks) if ranks.world > 1 else None
        self._watchdog: Watchdog | None = None
        self._members: list[Member] = []
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
        if self._own is None:
            return
        self._own.at(phase)
        if self._watchdog is not None:
            self._watchdog.at(phase, step)

    def slowest(self, step: int) -> Slowest | None:
        """The slowest rank, every n steps, else None. A collective then."""
        return None if self._own is None else self._own.look(step)

    def host_of(self, rank: int) -> str:
        """Host of a rank."""
        return self._members[rank].host

    def stop(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
