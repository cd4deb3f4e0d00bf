"""Tell the supervisor why training stopped: by exit code, and by a message to `stayfinite run`.

A supervisor (torchrun, Slurm, a shell loop) restarts after a crash. A training stopped on purpose would fail again, so
an uncaught ``TrainingStopped`` exits with its own code instead of 1. A launcher may swallow that code, so `stayfinite
run` names a file to which every rank of its machine appends a line.
"""

import contextlib
import json
import os
import sys
from types import TracebackType
from typing import Any

from stayfinite.core.supervising import WORDS
from stayfinite.errors import TrainingStopped


def use_exit_code(error: TrainingStopped) -> TrainingStopped:
    """If ``error`` goes uncaught, show its traceback as usual and exit with its code."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        previous(kind, raised, trace)
        if raised is error:
            raise SystemExit(error.exit_code)

    sys.excepthook = hook
    return error


def leave_word(event: str, step: int, **details: Any) -> None:
    """Append a line to the supervisor's file, if any: `launched` at the first step, `stopped` at a stop."""
    if not (path := os.environ.get(WORDS)):
        return
    line = json.dumps({"event": event, "step": step, **details}, default=str) + "\n"
    # On failure the supervisor uses the exit code.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)
