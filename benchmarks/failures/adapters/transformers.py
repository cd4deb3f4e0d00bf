"""transformers' ``DebugUnderflowOverflow(model)``, written behind the model."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.failures.adapters.running import answer_of, at_first_call, caught, run_program
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer
from benchmarks.failures.naming import FRAME
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.steps.record import Training


class UnderflowOverflow(Tool):
    """Raises in the forward pass at the first module that holds or makes NaN or infinity, and prints the way there."""

    name = "`DebugUnderflowOverflow`"
    about = "`DebugUnderflowOverflow(model)` for every model"
    needs = ("transformers",)

    def prepare(self) -> None:
        """Load it."""
        from transformers.debug_utils import DebugUnderflowOverflow

        self._debug: Callable[..., Any] = DebugUnderflowOverflow
        self._kept: list[Any] = []

    def program(self, program: Program, folder: Path) -> Answer:
        """Run it with the line behind every model."""
        at_first_call(lambda model: self._kept.append(self._debug(model)))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            error = run_program(program, folder)
        return answer_of(error, _named(error, printed.getvalue()))

    def step(self, training: Training, folder: Path) -> Answer:  # noqa: ARG002
        """Train with the line behind the model."""
        self._kept.append(self._debug(training.model))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            error = caught(training.run)
        return answer_of(error, _named(error, printed.getvalue()))


def _named(error: str, printed: str) -> tuple[str, ...]:
    """The causes that the end of its report tells."""
    if "DebugUnderflowOverflow" not in error:
        return ()
    frames = _frames(printed)
    if not frames:
        return ()
    bad = [what for low, high, what in frames[-1] if not (math.isfinite(low) and math.isfinite(high))]
    if any("input" in what for what in bad) and len(frames) > 1:
        return ()  # came from another module: the report shows where it was met
    return next((causes for what, causes in FRAME if any(what in each for each in bad)), ())


def _frames(printed: str) -> list[list[tuple[float, float, str]]]:
    """Each module of the last batch in the report: its lines of smallest, largest, what."""
    frames: list[list[tuple[float, float, str]]] = []
    for line in printed.partition("abs min  abs max  metadata")[2].splitlines():
        if "Starting batch" in line:
            frames.clear()
        parts = line.split(maxsplit=2)
        try:
            frames[-1].append((float(parts[0]), float(parts[1]), parts[2]))
        except (ValueError, IndexError):
            if line.strip():
                frames.append([])
    return [frame for frame in frames if frame]
