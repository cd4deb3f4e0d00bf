"""What a supervisor is told: the exit code of a training that a guard has stopped, and a word to `stayfinite run`.

A supervisor (torchrun, Slurm, a shell loop) restarts what has crashed. A training that was stopped for a reason would
only fail again, so an uncaught ``TrainingStopped`` ends the process with its own exit code instead of 1. A launcher in
between may swallow that code; `stayfinite run` therefore names a file, to which every rank of its machine adds a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from types import TracebackType
from typing import Any

from stayfinite.core.supervising import WORDS
from stayfinite.errors import TrainingStopped


def use_exit_code(error: TrainingStopped) -> TrainingStopped:
    """Prepare for ``error`` going uncaught: its traceback is shown as ever, the process ends with its exit code."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        previous(kind, raised, trace)
        if raised is error:
            raise SystemExit(error.exit_code)

    sys.excepthook = hook
    return error


def leave_word(event: str, step: int, **details: Any) -> None:
    """Add a line to the supervisor's file, where there is one: `launched` at the first step, `stopped` at a stop."""
    if not (path := os.environ.get(WORDS)):
        return
    line = json.dumps({"event": event, "step": step, **details}, default=str) + "\n"
    # The supervisor then goes by the exit code: no reason to end a training.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)
