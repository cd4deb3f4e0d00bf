"""Decide whether to restart a training that ended; pure, for `stayfinite run` and the simulator.

A crash is worth a restart; a training stopped by the guard is not, since it would fail again. A launcher such as
torchrun hides the difference (it exits with 1 either way), so the run's own record comes before the exit code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

STOPS = frozenset({86, 87, 88, 89})
"""Exit codes of a training that was stopped on purpose; see ``errors.TrainingStopped``."""

WORDS = "STAYFINITE_WORDS"
"""Environment variable with the file in which guards leave messages for `stayfinite run`."""

LONGEST_PAUSE = 300.0
"""Longest pause before a restart, in seconds."""


INSTANT = 1.0
"""Seconds within which a training cannot have begun: the command itself is wrong."""

MOST_INSTANT = 2
"""Attempts in a row that may end so."""


class Move(StrEnum):
    """Next action of the supervisor."""

    DONE = "done"
    STOPPED = "stopped"
    TOLD = "told"
    GIVE_UP = "give-up"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one attempt ended."""

    code: int
    """Exit code of the command; negative for the signal that killed it."""

    began: int | None = None
    """Step that the training started or resumed from; None if it reached no step."""

    stopped: int | None = None
    """Exit code from the run's own record, if it says that training was stopped."""

    told: int | None = None
    """Signal that asked the supervisor itself to end, if any."""

    seconds: float | None = None
    """How long it ran; None if unknown."""

    @property
    def instant(self) -> bool:
        """Whether the command refused by itself at once; a killed one may have been well."""
        return self.began is None and self.code > 0 and self.seconds is not None and self.seconds < INSTANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """State of the supervisor between attempts."""

    most: int
    """Most restarts in total."""

    first_pause: float
    restarts: int = 0
    futile: int = 0
    """Consecutive attempts that started no later than the one before."""

    instant: int = 0
    """Consecutive attempts that ended at once."""

    began: int = -1
    """Step that the last attempt with a step started from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """Next action, with the exit code or the pause before a restart."""

    move: Move
    code: int = 0
    pause: float = 0.0
    early: bool = False
    """It gives up with restarts left: the command cannot work."""


def shown_code(code: int) -> int:
    """Exit code as a shell shows it: 128 plus the signal for a killed process."""
    return 128 - code if code < 0 else code


def after(ending: Ending, state: Supervision) -> tuple[Next, Supervision]:
    """Decide after the end of an attempt.

    An attempt that starts at a later step than the one before made progress (a checkpoint was written) and resets the
    pause. Others double it. A command that ends at once, twice in a row, cannot work.
    """
    if ending.code == 0:
        return Next(move=Move.DONE), state
    if (code := stop_code(ending)) is not None:
        return Next(move=Move.STOPPED, code=code), state
    if ending.told is not None:
        return Next(move=Move.TOLD, code=128 + ending.told), state
    began = state.began if ending.began is None else ending.began
    first = state.restarts == 0
    futile = 0 if first or began > state.began else state.futile + 1
    state = replace(state, futile=futile, began=began, instant=state.instant + 1 if ending.instant else 0)
    if state.instant >= MOST_INSTANT and state.restarts < state.most:
        return Next(move=Move.GIVE_UP, code=shown_code(ending.code), early=True), state
    if state.restarts >= state.most:
        return Next(move=Move.GIVE_UP, code=shown_code(ending.code)), state
    pause = min(state.first_pause * 2.0 ** min(state.futile, 32), LONGEST_PAUSE)
    return Next(move=Move.RESTART, pause=pause), replace(state, restarts=state.restarts + 1)


def after_pause(stopped: int | None, told: int | None) -> Next:
    """Check again before a restart: a rank on another machine may have recorded a stop meanwhile."""
    if stopped is not None:
        return Next(move=Move.STOPPED, code=stopped)
    if told is not None:
        return Next(move=Move.TOLD, code=128 + told)
    return Next(move=Move.RESTART)


def stop_code(ending: Ending) -> int | None:
    """Exit code of a stop, from the record or the command; None if there was none."""
    if ending.stopped is not None:
        return ending.stopped
    return ending.code if ending.code in STOPS else None
