"""How far this rank has come in its step: told by the guard, kept for the watchdog and for finding the slowest rank."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path

import torch

from stayfinite.core.stalls import Phase
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.ranks.slowest import OwnTime, Slowest
from stayfinite.guard.ranks.watchdog import Member, Watchdog, muster, timeout_of


class Progress:
    """Marks a rank's way through its steps; nothing at all where it is the only one.

    Arguments:
        ranks: all processes of the training.
        directory: the run's; there is a watchdog where every rank has one.
        device: that the guard's all-reduce runs on.
        floor: seconds without progress that the watchdog never looks at; 0 for no watchdog.
        launch: the same word on all ranks, another one at each launch.
        tell: ``tell(event, step, line, **details)``, a method; it is not kept alive.
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
        self._members = muster(ranks.world, ranks._host_group)
        word = ranks.from_first(launch())
        # Somebody without a directory could not answer there.
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
        """The training has come to this phase of this step."""
        if self._own is None:
            return
        self._own.at(phase)
        if self._watchdog is not None:
            self._watchdog.at(phase, step)

    def slowest(self, step: int) -> Slowest | None:
        """After a step: the slowest rank, every so many of them. A collective then."""
        return None if self._own is None else self._own.look(step)

    def host_of(self, rank: int) -> str:
        """The machine that a rank runs on."""
        return self._members[rank].host

    def stop(self) -> None:
        """Watch no more."""
        if self._watchdog is not None:
            self._watchdog.stop()
