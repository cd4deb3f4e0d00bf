"""Running a program or a training as it is, for tools that watch from inside the process."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.failures.cases import Answer
from benchmarks.failures.naming import named_by_error
from benchmarks.failures.programs.reading import Program


def run_program(program: Program, folder: Path) -> str:
    """Run it as ``python train.py`` would; the error that ended it, or an empty text."""
    script = folder / "train.py"
    script.write_text(program.text, encoding="utf-8")
    sys.argv = [str(script)]
    return caught(lambda: runpy.run_path(str(script), run_name="__main__"))


def caught(work: Callable[[], Any]) -> str:
    """The error that it ended with, or an empty text."""
    try:
        work()
    except SystemExit as ending:
        return "" if ending.code in (0, None) else f"SystemExit: {ending.code}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def answer_of(error: str, named: tuple[str, ...] = ()) -> Answer:
    """An error is an alarm; the causes are those that the tool names, or that torch's own message does."""
    return Answer(alarmed=bool(error), first=named or named_by_error(error), words=error[:200])


def at_first_call(act: Callable[[nn.Module], None]) -> None:
    """From now on, call this with each outermost module before its first forward pass, as users would."""
    met: set[int] = set()
    depth = 0
    call = nn.Module.__call__

    def watched(module: nn.Module, *given: Any, **named: Any) -> Any:
        nonlocal depth
        if depth == 0 and id(module) not in met and any(True for _ in module.parameters()):
            met.update(id(each) for each in module.modules())
            act(module)
        depth += 1
        try:
            return call(module, *given, **named)
        finally:
            depth -= 1

    nn.Module.__call__ = watched  # type: ignore[method-assign]


def optimizers_from_now_on() -> list[torch.optim.Optimizer]:
    """A list that grows with every optimizer that is built."""
    built: list[torch.optim.Optimizer] = []
    begin = torch.optim.Optimizer.__init__

    def noted(optimizer: torch.optim.Optimizer, *given: Any, **named: Any) -> None:
        begin(optimizer, *given, **named)
        built.append(optimizer)

    torch.optim.Optimizer.__init__ = noted  # type: ignore[method-assign,assignment]
    return built
