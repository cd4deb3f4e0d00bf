"""What costs nothing: the program alone, a search for "nan", and always the same answer."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from benchmarks.failures.adapters.running import answer_of, caught, run_program
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer
from benchmarks.failures.logs import reading as logs
from benchmarks.failures.logs.reading import LogCase
from benchmarks.failures.programs import reading as programs
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.steps import reading as steps
from benchmarks.failures.steps.record import Training


class Plain(Tool):
    """What everybody sees without a tool: the program falls over, or it does not."""

    name = "no tool"
    about = "the program alone; an alarm is its own error"

    def program(self, program: Program, folder: Path) -> Answer:
        """Run it."""
        return answer_of(run_program(program, folder))

    def step(self, training: Training, folder: Path) -> Answer:  # noqa: ARG002
        """Train."""
        return answer_of(caught(training.run))


class Grep(Tool):
    """A search for the words."""

    name = "grep nan"
    about = "the log holds `nan`, `inf` or `overflow`"

    def log(self, case: LogCase, folder: Path) -> Answer:  # noqa: ARG002
        """Search."""
        found = re.search(r"\b(nan|inf|overflow)\b", case.log, re.IGNORECASE)
        return Answer(alarmed=found is not None, words=found[0] if found else "")


class Majority(Tool):
    """Always an alarm, always the cause that is most frequent among the known cases of the part."""

    name = "majority guess"
    about = "always an alarm, always the most frequent known cause"
    runs = False

    def prepare(self) -> None:
        """Count."""
        known = {"programs": programs.read("known"), "logs": logs.read("known"), "steps": steps.read("known")}
        self._most = {
            part: Counter(case.causes[0] for case in cases if case.causes).most_common(1)[0][0]
            for part, cases in known.items()
        }

    def program(self, program: Program, folder: Path) -> Answer:  # noqa: ARG002
        """The same as ever."""
        return Answer(alarmed=True, first=(self._most["programs"],))

    def log(self, case: LogCase, folder: Path) -> Answer:  # noqa: ARG002
        """The same as ever."""
        return Answer(alarmed=True, first=(self._most["logs"],))

    def step(self, training: Training, folder: Path) -> Answer:  # noqa: ARG002
        """The same as ever."""
        return Answer(alarmed=True, first=(self._most["steps"],))
