"""Whether a training that has ended is started again: pure, for `stayfinite run` and for the simulator.

A crash is worth a restart, a training that a guard has stopped is not: it would only fail again. A launcher such as
torchrun hides the difference (it ends with 1 either way), so the run's own record decides before the exit code does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

STOPS = frozenset({86, 87, 88, 89})
"""Exit codes of a training that was stopped for a reason; see ``errors.TrainingStopped``."""

WORDS = "STAYFINITE_WORDS"
"""The environment variable that names the file in which guards leave word for `stayfinite run`."""

LONGEST_PAUSE = 300.0
"""Seconds before a restart, at most."""


class Move(StrEnum):
    """What a supervisor does next."""

    DONE = "done"
    STOPPED = "stopped"
    TOLD = "told"
    GIVE_UP = "give-up"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one attempt ended."""

    code: int
    """Exit code of the command; minus the signal that killed it."""

    began: int | None = None
    """The step that the training began or resumed from; None where it came to no step."""

    stopped: int | None = None
    """The exit code that the run's own record asks for, where it says that training was stopped."""

    told: int | None = None
    """The signal by which the supervisor itself was asked to end, if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """What a supervisor remembers between attempts."""

    most: int
    """Restarts, in all."""

    first_pause: float
    restarts: int = 0
    futile: int = 0
    """Attempts in a row that began no later than the one before."""

    began: int = -1
    """The step that the last attempt with a step began from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What to do, with the exit code of an end and the pause before a restart."""

    move: Move
    code: int = 0
    pause: float = 0.0


def shown_code(code: int) -> int:
    """An exit code as a shell shows it: 128 and the signal for a process that was killed."""
    return 128 - code if code < 0 else code


def after(ending: Ending, state: Supervision) -> tuple[Next, Supervision]:
    """What follows from the end of an attempt.

    An attempt that begins at a later step than the one before has gained ground: a checkpoint was written meanwhile,
    and the pause is short again. Others double it.
    """
    if ending.code == 0:
        return Next(move=Move.DONE), state
    if (code := stop_code(ending)) is not None:
        return Next(move=Move.STOPPED, code=code), state
    if ending.told is not None:
        return Next(move=Move.TOLD, code=128 + ending.told), state
    began = state.began if ending.began is None else ending.began
    state = replace(state, futile=0 if began > state.began else state.futile + 1, began=began)
    if state.restarts >= state.most:
        return Next(move=Move.GIVE_UP, code=shown_code(ending.code)), state
    pause = min(state.first_pause * 2.0 ** min(state.futile, 32), LONGEST_PAUSE)
    return Next(move=Move.RESTART, pause=pause), replace(state, restarts=state.restarts + 1)


def after_pause(stopped: int | None, told: int | None) -> Next:
    """Before the restart, a second look: another machine's rank may have written only now that training was stopped."""
    if stopped is not None:
        return Next(move=Move.STOPPED, code=stopped)
    if told is not None:
        return Next(move=Move.TOLD, code=128 + told)
    return Next(move=Move.RESTART)


def stop_code(ending: Ending) -> int | None:
    """The code of a stop, from the record or from the command itself; None where there was no stop."""
    if ending.stopped is not None:
        return ending.stopped
    return ending.code if ending.code in STOPS else None
