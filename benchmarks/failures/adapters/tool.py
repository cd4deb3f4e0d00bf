"""What a tool has to offer: a method for each part it can do. What is left out becomes a dash, not a zero."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import ClassVar

from benchmarks.failures.cases import Answer
from benchmarks.failures.logs.reading import LogCase
from benchmarks.failures.processes import LONGEST
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.steps.record import Training


class Tool:
    """Each method runs in a process of its own, in an empty folder, and may patch or break whatever it likes."""

    name: ClassVar[str] = ""
    about: ClassVar[str] = ""
    """How its users would use it, in one line."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Packages without which it is left out."""
    default: ClassVar[bool] = True
    """Whether it is run when nobody asks for it by name."""
    runs: ClassVar[bool] = True
    """Whether it lets the program run; otherwise its time says nothing."""
    longest: ClassVar[float] = LONGEST
    """Seconds for one case."""

    @property
    def installed(self) -> bool:
        """Whether its packages are there."""
        return all(importlib.util.find_spec(each) is not None for each in self.needs)

    def can(self, part: str) -> bool:
        """Whether it does this part at all."""
        method = {"programs": "program", "logs": "log", "steps": "step"}[part]
        return getattr(type(self), method) is not getattr(Tool, method)

    def prepare(self) -> None:
        """Import what is needed, once, before processes are forked."""

    def program(self, program: Program, folder: Path) -> Answer:
        """Run a program, unmodified, under the tool."""
        raise NotImplementedError

    def log(self, case: LogCase, folder: Path) -> Answer:
        """Read a log, and the settings beside it."""
        raise NotImplementedError

    def step(self, training: Training, folder: Path) -> Answer:
        """Take the steps of a short training under the tool."""
        raise NotImplementedError
