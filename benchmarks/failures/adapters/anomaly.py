"""``torch.autograd.set_detect_anomaly(True)`` at the top of the program."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.failures.adapters.running import answer_of, caught, run_program
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer
from benchmarks.failures.naming import named_by_backward, named_by_line
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.steps.record import Training


class Anomaly(Tool):
    """Raises where a backward function returns NaN, and names the function."""

    name = "`set_detect_anomaly`"
    about = "`torch.autograd.set_detect_anomaly(True)` before the first line"

    def program(self, program: Program, folder: Path) -> Answer:
        """Run it in anomaly mode."""
        torch.autograd.set_detect_anomaly(True)
        return told(lambda: run_program(program, folder))

    def step(self, training: Training, folder: Path) -> Answer:  # noqa: ARG002
        """Train in anomaly mode."""
        torch.autograd.set_detect_anomaly(True)
        return told(lambda: caught(training.run))


def told(run: Callable[[], str]) -> Answer:
    """What anomaly mode says: the function in its error, and the forward line in its warning."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        error = run()
    if "returned nan" not in error:
        return answer_of(error)
    traces = [str(each.message) for each in heard if "Error detected in" in str(each.message)]
    line = _own_line(traces[-1]) if traces else ""
    answer = answer_of(error, named_by_backward(error) or named_by_line(line))
    return replace(answer, words=f"{answer.words} at: {line}" if line else answer.words)


def _own_line(trace: str) -> str:
    """The innermost line of the traceback that is the user's own."""
    frames = re.findall(r'File "([^"]+)", line \d+, in .*\n\s+(.+)', trace)
    return next((line for file, line in reversed(frames) if "site-packages" not in file), "")
