"""Puts cases to tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer, Case, Result
from benchmarks.failures.logs import reading as logs
from benchmarks.failures.logs.reading import LogCase
from benchmarks.failures.processes import in_a_fork
from benchmarks.failures.programs import reading as programs
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.steps import reading as steps
from benchmarks.failures.steps.record import StepCase

READERS: dict[str, Callable[[str], Iterable[Case]]] = {
    "programs": programs.read,
    "logs": logs.read,
    "steps": steps.read,
}


def put(tool: Tool, case: Case) -> Result:
    """One case to one tool, in a process of its own."""

    def work(folder: Path) -> Answer:
        if isinstance(case, Program):
            return tool.program(case, folder)
        if isinstance(case, LogCase):
            return tool.log(case, folder)
        assert isinstance(case, StepCase)
        return tool.step(case.build(), folder)

    answer, seconds, error = in_a_fork(work, tool.longest)
    return Result(case=case, tool=tool.name, answer=answer or Answer(alarmed=False), seconds=seconds, error=error)


def campaign(tool: Tool, cases: Iterable[Case], jobs: int) -> Iterator[Result]:
    """All cases to one tool, some at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(put, tool, case) for case in cases]):
            yield future.result()
