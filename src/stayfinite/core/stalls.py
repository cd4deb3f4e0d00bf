"""Which rank keeps the others waiting: pure, for the watchdog and for the simulator.

A rank is behind when it has not come as far in its step as the others. A long evaluation, a checkpoint or a first step
that compiles is no stall: nobody is behind there, or whoever is still moves. A rank that is behind and stands still, or
does not answer at all, is named. One that is late and moves is named only when the collective is about to time out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

WARM = 3
"""Steps before what is usual is known: the first ones compile, fill caches and open connections."""

TIMES_USUAL = 10
"""A step that takes so many times the usual one is looked at."""

TIMES_LONGEST = 2
"""And so many times the longest pause so far, which was an evaluation or a checkpoint."""

HALF = 0.5
"""Share of the collective's time-out after which it is looked at in any case."""

URGENT = 0.7
"""Share of the time-out after which a rank that still moves is named too."""


SILENCE = 1.5
"""So many times the limit are waited for an answer: another rank's limit may be somewhat longer."""


class Phase(IntEnum):
    """How far a rank has come in its step."""

    OUTSIDE = 0
    """Batch, forward pass, evaluation, the loop's own checkpoint."""

    BACKWARD = 1
    MEETING = 2
    """The guard's all-reduce."""

    AFTER = 3
    """The verdict, the optimizer, snapshots, checkpoints."""


PHASES = len(Phase)


class Kind(StrEnum):
    """What is the matter with the ranks that are named."""

    HUNG = "hung"
    """They are behind and stand still."""

    SILENT = "silent"
    """They do not answer: dead, stopped, or stuck with Python's lock held."""

    LATE = "late"
    """They are behind and move, and the time-out is near."""

    TOGETHER = "together"
    """All ranks stand still at the same point; those that stand elsewhere in the code are named, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """How a rank stands, as it tells itself."""

    rank: int
    step: int
    """The step that it works on."""

    phase: Phase
    quiet: float
    """Seconds since it last came from one phase to the next."""

    still: float
    """Seconds since its stack last moved."""

    waits: bool = False
    """Whether its stack ends in a collective."""

    where: str = ""
    """The line that it stands at."""

    @property
    def place(self) -> int:
        """How far it has come, over all steps."""
        return PHASES * self.step + self.phase

    @property
    def kept_waiting(self) -> bool:
        """Whether it waits for others, as far as one can tell."""
        return self.waits or self.phase in (Phase.BACKWARD, Phase.MEETING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Some ranks keep the others waiting."""

    kind: Kind
    step: int
    """That is waited for."""

    ranks: tuple[int, ...]
    """Those to look at; empty where all stand at the same line."""

    waited: float
    """Seconds."""


def limit_of(recent: Sequence[float], longest: float, *, floor: float, timeout: float) -> float:
    """Seconds without progress after which a rank says how it stands.

    Arguments:
        recent: how long the last steps took.
        longest: the longest time without progress that the run has come out of.
        floor: at least so many seconds.
        timeout: of the collective.
    """
    if len(recent) < WARM:
        return HALF * timeout
    usual = max(floor, TIMES_USUAL * statistics.median(recent), TIMES_LONGEST * longest)
    return min(usual, HALF * timeout)


def find_stall(beats: Sequence[Beat], world: int, *, limit: float, timeout: float) -> Stall | None:
    """The ranks that keep others waiting; None while there is no reason to name any.

    Arguments:
        beats: of the ranks that have answered.
        world: how many ranks there are.
        limit: seconds of standing still.
        timeout: of the collective, in seconds.
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
    # Of those that have come equally far, whoever waits in a collective waits for the others.
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
    """The ranks that stand where fewest do."""
    lines = Counter(beat.where for beat in beats)
    if len(lines) == 1:
        return ()
    rarest = min(lines, key=lambda line: (lines[line], line))
    return tuple(beat.rank for beat in beats if beat.where == rarest)
