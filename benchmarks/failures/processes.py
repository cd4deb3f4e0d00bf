"""Runs one tool on one case in a process of its own, and measures its processor time."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.failures.cases import Answer

LONGEST = 240.0
"""Seconds for one case."""


def in_a_fork(work: Callable[[Path], Answer], longest: float = LONGEST) -> tuple[Answer | None, float, str]:
    """The answer, its processor seconds, and why there is none.

    A fork spares the imports: this process has them already. Whatever a tool patches ends with the child.
    """
    with tempfile.TemporaryDirectory() as folder:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _child(work, Path(folder), writing)
        os.close(writing)
        said, late = _read(reading, time.monotonic() + longest)
        if late:
            os.killpg(child, signal.SIGKILL)
        usage = os.wait4(child, 0)[2]
        seconds = usage.ru_utime + usage.ru_stime
        if late:
            return None, seconds, f"over {longest:.0f} s"
        try:
            answer = json.loads(said)
        except ValueError:
            return None, seconds, "no answer"
        if "error" in answer:
            return None, seconds, answer["error"]
        answer.update({name: tuple(answer[name]) for name in ("first", "others")})
        return Answer(**answer), seconds, ""


def _child(work: Callable[[Path], Answer], folder: Path, writing: int) -> None:
    """Never returns."""
    said: dict[str, object] = {"error": "ended early"}
    try:
        os.setpgid(0, 0)
        warnings.simplefilter("ignore")  # also where the parent has made errors of them
        os.chdir(folder)
        with (folder / "terminal.txt").open("w") as terminal:
            sys.stdout = sys.stderr = terminal
            os.dup2(terminal.fileno(), 1)
            os.dup2(terminal.fileno(), 2)
            said = asdict(work(folder))
    except BaseException as error:  # also SystemExit: the child must end here
        said = {"error": f"{type(error).__name__}: {error}"[:300]}
    with os.fdopen(writing, "w") as pipe:
        json.dump(said, pipe)
    os._exit(0)


def _read(reading: int, deadline: float) -> tuple[str, bool]:
    """All that is written, and whether it came too late."""
    pieces: list[bytes] = []
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while (left := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left)[0]:
                piece = pipe.read(65536)
                if not piece:
                    return b"".join(pieces).decode(), False
                pieces.append(piece)
    return "", True
