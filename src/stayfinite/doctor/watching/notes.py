"""State shared by the watchers of a program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stayfinite.doctor.frames import user_frames
from stayfinite.doctor.moments import Moment, moment
from stayfinite.doctor.record import LoaderSeen, Program
from stayfinite.doctor.replay import playing
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.stopping import ProgramStopped
from stayfinite.state.rng import RngMemory

MOST_TROUBLES = 8


class Notes:
    """Record of a program and the start of its current step."""

    def __init__(self) -> None:
        self.program = Program()
        self.busy = False
        """Whether a watcher is running; its own calls are not recorded."""
        self.drawn: dict[int, Any] = {}
        """Last batches by ``id`` of the loader's iterator."""
        self.depth = 0
        """Nesting depth of module calls."""
        self.reading: LoaderSeen | None = None
        """The loader that last yielded a batch."""
        self.given: Tensor | None = None
        """The last training input of a model."""
        self.buffers: dict[int, Tensor] = {}
        """Buffers of modules called in this step, as they were before, by ``id``."""
        self._rng = RngMemory()
        self.began: Moment | None = Moment([], self._rng.capture())
        """The last moment between two steps."""
        self.came: Moment | None = None
        """When the last batch came, if later."""

    def begin_step(self) -> None:
        """Mark the end of a step."""
        self.began, self.came = moment(user_frames(), self._rng.capture()), None
        self.buffers = {}

    def take_batch(self) -> None:
        """Mark a new batch."""
        self.came = moment(user_frames(), self._rng.capture())


class Watching:
    """Base of the watchers."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    @property
    def program(self) -> Program:
        return self.notes.program

    @property
    def aside(self) -> bool:
        """Whether the current call is a replay or our own."""
        return playing.on or self.notes.busy

    @staticmethod
    def before(stand_ins: StandIns, owner: Any, name: str, note: Callable[..., Any]) -> None:
        """Call ``note(*args)`` before every call of a function."""

        def meet(original: Any, *args: Any, **kwargs: Any) -> Any:
            note(*args)
            return original(*args, **kwargs)

        stand_ins.put(owner, name, meet)

    @staticmethod
    def after(stand_ins: StandIns, owner: Any, name: str, note: Callable[..., Any]) -> None:
        """Call ``note(returned, *args)`` after every call of a function."""

        def meet(original: Any, *args: Any, **kwargs: Any) -> Any:
            returned = original(*args, **kwargs)
            note(returned, *args)
            return returned

        stand_ins.put(owner, name, meet)


def safely(function: Callable[..., Any]) -> Callable[..., Any]:
    """Record failures of a watcher instead of raising them into the program."""

    @functools.wraps(function)
    def safe(self: Watching, *args: Any, **kwargs: Any) -> Any:
        if self.aside:
            return None
        self.notes.busy = True
        try:
            with torch.no_grad():
                return function(self, *args, **kwargs)
        except ProgramStopped:
            raise
        except Exception as error:
            if len(self.program.troubles) < MOST_TROUBLES:
                self.program.troubles.append(f"{function.__name__}: {type(error).__name__}: {error}"[:300])
            return None
        finally:
            self.notes.busy = False

    return safe
