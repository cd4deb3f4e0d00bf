"""Find the rank that keeps the others waiting; pure, for the watchdog and the simulator.

A rank is behind if it is at an earlier point of its step than the others. A long evaluation, a checkpoint or a
compiling first step is not a stall: no rank is behind, or the one that is still moves. A rank that is behind and does
not move, or does not answer, is named. A late one that moves is named only when the collective is about to time out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

WARM = 3
"""Steps before a usual duration is known: the first ones compile, fill caches and open connections."""

TIMES_USUAL = 10
"""Multiple of the usual step time that is checked."""

TIMES_LONGEST = 2
"""Multiple of the longest pause so far (an evaluation or a checkpoint) that is checked."""

HALF = 0.5
"""Share of the collective's timeout after which a step is checked in any case."""

URGENT = 0.7
"""Share of the timeout after which a moving rank is named too."""


SILENCE = 1.5
"""Multiple of the limit to wait for an answer: another rank's limit may be longer."""


class Phase(IntEnum):
    """Progress of a rank within a step."""

    OUTSIDE = 0
    """Batch, forward pass, evaluation, the loop's own checkpoint."""

    BACKWARD = 1
    MEETING = 2
    """The guard's all-reduce."""

    AFTER = 3
    """The verdict, the optimizer, snapshots, checkpoints."""


PHASES = len(Phase)


class Kind(StrEnum):
    """Kind of stall."""

    HUNG = "hung"
    """The named ranks are behind and do not move."""

    SILENT = "silent"
    """The named ranks do not answer: dead, stopped, or stuck while holding the GIL."""

    LATE = "late"
    """The named ranks are behind and move, but the timeout is near."""

    TOGETHER = "together"
    """All ranks are stuck at the same point; those at another line of code are named, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Status of a rank, as reported by itself."""

    rank: int
    step: int
    """Current step."""

    phase: Phase
    quiet: float
    """Seconds since the last change of phase."""

    still: float
    """Seconds since its stack last changed."""

    waits: bool = False
    """Whether its stack ends in a collective."""

    where: str = ""
    """Current source line."""

    @property
    def place(self) -> int:
        """Total progress over all steps."""
        return PHASES * self.step + self.phase

    @property
    def kept_waiting(self) -> bool:
        """Whether it probably waits for other ranks."""
        return self.waits or self.phase in (Phase.BACKWARD, Phase.MEETING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Ranks that keep the others waiting."""

    kind: Kind
    step: int
    """The step that is stuck."""

    ranks: tuple[int, ...]
    """Ranks to look at; empty if all are at the same line."""

    waited: float


def limit_of(recent: Sequence[float], longest: float, *, floor: float, timeout: float) -> float:
    """Seconds without progress after which a rank reports its status.

    Arguments:
        recent: durations of the last steps.
        longest: longest pause so far that the run recovered from.
        floor: minimum in seconds.
        timeout: timeout of the collective.
    """
    if len(recent) < WARM:
        return HALF * timeout
    usual = max(floor, TIMES_USUAL * statistics.median(recent), TIMES_LONGEST * longest)
    return min(usual, HALF * timeout)


def find_stall(beats: Sequence[Beat], world: int, *, limit: float, timeout: float) -> Stall | None:
    """Return the ranks that keep others waiting; None if there is no reason to name any.

    Arguments:
        timeout: timeout of the collective in seconds.
    """
    if not beats:
        return None
    ahead = [beat for beat in beats if beat.kept_waiting and beat.quiet >= limit]
    step = min(beat.step for beat in beats)
    waited = max((beat.quiet for beat in ahead or beats), default=0.0)
    answered = {beat.rank for beat in beats}
    if len(answered) < world:
        silent = tuple(rank for rank in range(world) if rank not in answered)
        heard_of_nothing = ahead and waited >= SILENCE * limit
        return Stall(kind=Kind.SILENT, step=step, ranks=silent, waited=waited) if heard_of_nothing else None
    last = min(beat.place for beat in beats)
    at_last = [beat for beat in beats if beat.place == last]
    # Among ranks at the same point, one inside a collective waits for the others.
    behind = [beat for beat in at_last if not beat.waits] or at_last
    urgent = max(beat.quiet for beat in beats) >= URGENT * timeout
    if len(behind) == len(beats):
        if not urgent or any(beat.still < limit for beat in beats):
            return None
        return Stall(kind=Kind.TOGETHER, step=step, ranks=_odd_ones(beats), waited=waited)
    if not ahead:
        return None
    if hung := tuple(beat.rank for beat in behind if beat.still >= limit):
        return Stall(kind=Kind.HUNG, step=step, ranks=hung, waited=waited)
    if urgent:
        return Stall(kind=Kind.LATE, step=step, ranks=tuple(beat.rank for beat in behind), waited=waited)
    return None


def _odd_ones(beats: Sequence[Beat]) -> tuple[int, ...]:
    """Ranks at the rarest source line."""
    lines = Counter(beat.where for beat in beats)
    if len(lines) == 1:
        return ()
    rarest = min(lines, key=lambda line: (lines[line], line))
    return tuple(beat.rank for beat in beats if beat.where == rarest)
