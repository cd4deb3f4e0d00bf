"""The exit code of a process that a guard has stopped.

A supervisor (torchrun, Slurm, a shell loop) restarts what has crashed. A training that was stopped for a reason would
only fail again, so an uncaught ``TrainingStopped`` ends the process with its own exit code instead of 1.
"""

from __future__ import annotations

import sys
from types import TracebackType

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
