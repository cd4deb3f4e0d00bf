"""What the watchers of one program share: its record, its generators, and a hand that never disturbs it."""

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
from stayfinite.doctor.stopping import ProgramStopped
from stayfinite.state.rng_memory import RngMemory

MOST_TROUBLES = 8


class Notes:
    """The record of a program, and where its present step began."""

    def __init__(self) -> None:
        self.program = Program()
        self.busy = False
        """Whether a watcher is at work: what it calls itself is not recorded."""
        self.drawn: dict[int, Any] = {}
        """The last batches, by ``id`` of the loader's iterator."""
        self.depth = 0
        """Modules that are being called, one inside the other."""
        self.reading: LoaderSeen | None = None
        """The loader that gave a batch last."""
        self.given: Tensor | None = None
        """What a model was last given in training."""
        self.buffers: dict[int, Tensor] = {}
        """Of the modules that were called in this step, as they were before, by ``id``."""
        self._rng = RngMemory()
        self.began: Moment | None = Moment([], self._rng.capture())
        """The last moment between two steps."""
        self.came: Moment | None = None
        """The moment of the last batch, if it came later."""

    def begin_step(self) -> None:
        """A step has ended, and the next begins."""
        self.began, self.came = moment(user_frames(), self._rng.capture()), None
        self.buffers = {}

    def take_batch(self) -> None:
        """A batch has come."""
        self.came = moment(user_frames(), self._rng.capture())


class Watching:
    """A watcher of one matter."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    @property
    def program(self) -> Program:
        """What was seen so far."""
        return self.notes.program

    @property
    def aside(self) -> bool:
        """Whether what happens now is not the program's: a replay, or our own work."""
        return playing.on or self.notes.busy


def safely(function: Callable[..., Any]) -> Callable[..., Any]:
    """A failure of ours is written down and is none of the program's."""

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
