"""One training at a time in an output directory: two would overwrite each other's checkpoints and mix their logs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stayfinite.errors import UsageError
from stayfinite.recipes.running.processes import Place

LOCK = ".lock"


@contextmanager
def alone(output: Path, place: Place) -> Iterator[None]:
    """Hold the directory while training, on rank 0. The system lets it go when the process ends, however it ends.

    Raises:
        UsageError: another process holds it; on every rank.
    """
    held: list[IO[str]] = []
    place.by_first(lambda: held.extend(_hold(output)))
    try:
        yield
    finally:
        for file in held:
            file.close()


def _hold(output: Path) -> list[IO[str]]:
    try:
        import fcntl
    except ImportError:  # Windows
        return []
    output.mkdir(parents=True, exist_ok=True)
    file = (output / LOCK).open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        other = file.read().strip()
        file.close()
        raise UsageError(
            f"another process is training in {output}" + (f": {other}" if other else ""),
            fix="wait until it ends, stop it, or choose another --output-dir",
        ) from None
    except OSError:  # a file system without locks
        file.close()
        return []
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return [file]
