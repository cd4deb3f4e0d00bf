"""Shared storage: checkpoints that ranks write together, by the turns of ``core/sharing.py``, and the run's record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stayfinite.core.sharing import Turn

PATIENCE = 600.0
"""Seconds that one rank waits for another's share, as ``state/checkpoints.py`` has it."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one kin of ranks contributes to a checkpoint."""

    step: int
    poisoned: bool
    """Whether it holds NaN; a rank looks before it writes."""

    seconds: float
    """Until its report is there; infinite where it never is."""

    failed: bool
    """Whether its report tells of trouble."""

    ranks: int
    notes: Any
    """What its ranks remember at that step."""


@dataclass(slots=True)
class Pending:
    """A checkpoint that is written beside training."""

    begun: float
    shares: dict[int, Share] = field(default_factory=dict)
    """By the lowest rank of each kin."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A checkpoint that has its name."""

    step: int
    shares: Mapping[int, Share]
    damaged: bool = False


class Disk:
    """What outlasts a crash.

    Arguments:
        first_rank: the turn of the first rank; that of the product, or a broken one to try the simulator itself.
    """

    def __init__(self, first_rank: Callable[..., Turn]) -> None:
        self._first_rank = first_rank
        self.finished: list[Finished] = []
        self.given_up = 0
        self.stops: list[float] = []
        """When ranks have written that training was stopped."""

    def settle(self, pending: Pending, until: Mapping[int, float]) -> float:
        """Let the ranks write to the end; returns when the first rank is done.

        Arguments:
            pending: what they write.
            until: when each kin ends, infinite while it lives. The first rank gives up when it ends; what it has not
                named by then is no checkpoint.
        """
        times = {rank: share.seconds for rank, share in pending.shares.items()}
        seen = {
            rank: pending.begun + seconds
            for rank, seconds in times.items()
            if pending.begun + seconds <= until.get(rank, math.inf)
        }
        own = seen.get(0, math.inf)
        deadline = own + PATIENCE
        for now in sorted({own, deadline, *(max(each, own) for each in seen.values())}):
            if now > until.get(0, math.inf) or now == math.inf:
                break
            arrived = {rank for rank, when in seen.items() if when <= now}
            awaited = sum(share.ranks for rank, share in pending.shares.items() if rank not in arrived)
            failed = any(pending.shares[rank].failed for rank in arrived)
            turn = self._first_rank(awaited=awaited, failed=failed, spent=now >= deadline)
            if turn is Turn.FINISH:
                self.finished.append(Finished(pending.shares[0].step, {rank: pending.shares[rank] for rank in arrived}))
                return now
            if turn is Turn.GIVE_UP:
                self.given_up += 1
                return now
        self.given_up += 1
        return min(deadline, until.get(0, math.inf))

    def newest(self) -> Finished | None:
        """The newest checkpoint that is whole, which the first rank looks for and all ranks take."""
        return next((each for each in reversed(self.finished) if not each.damaged), None)
