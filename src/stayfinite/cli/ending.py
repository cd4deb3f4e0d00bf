"""How a command ends: an error that is told, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from stayfinite.errors import NotReady, StayfiniteError, TrainingStopped


def exit_code(command: str, work: Callable[[], int], *, also: tuple[type[Exception], ...] = ()) -> int:
    """Do the work of a command; an error is told in its name.

    Arguments:
        command: as it was typed, after `stayfinite`.
        also: further errors that are for the user to mend, such as OSError where the work is to read and write files.

    Returns:
        What the work returned; 1 when a check refused to start, 2 on wrong use; a training that stopped has its own.
    """
    told: tuple[type[Exception], ...] = (StayfiniteError, *also)
    try:
        return work()
    except BrokenPipeError:
        raise  # whoever read the output has seen enough
    except told as error:
        print(f"stayfinite {command}: {error}", file=sys.stderr)
        if isinstance(error, TrainingStopped):
            return error.exit_code
        return 1 if isinstance(error, NotReady) else 2
