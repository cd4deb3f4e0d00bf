"""Processes that tests start: their environment, their end, and what they had said when they did not come to one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from warm import Process

PATIENCE = 280.0
"""Seconds in which a process of a test has to end: a little less than the test itself has."""

GRACE = 30.0
"""Seconds that processes have to say where they stand, once they are out of time."""

SHOWN = 8000
"""Characters of each stream that a failure shows, the last ones."""


def environment(**more: str) -> dict[str, str]:
    """With the tests on the path, as pytest's ``pythonpath`` has them, and one thread.

    The last bit of a sum depends on how many threads there are.
    """
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more


def torchrun(ranks: int) -> list[str]:
    """The words before a script, or before ``-m`` and a module, that start it in so many processes."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]


def finish(
    command: Sequence[str | Path],
    *,
    timeout: float = PATIENCE,
    env: Mapping[str, str] | None = None,
    logs: Path | None = None,
    warm: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, however that is.

    If it does not end in time, the test fails with what it and the processes that it started have written, and with the
    place in the code where each of the Python ones stood. None of them is left behind.

    Arguments:
        command: what to run.
        timeout: in seconds.
        env: its environment, `environment` if none is given.
        logs: a directory of text files to which parts of it write; a failure shows these too.
        warm: it is Python, and begins with torch loaded.
    """
    words = [str(word) for word in command]
    # A process that is asked to abort then says where it stands.
    said = {**(environment() if env is None else env), "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    with (
        Process(words[1:], env=said)
        if warm
        else subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=said)
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(process.pid)
            out, err = process.communicate()
            parts = {"its output": out, "its errors, and where its processes stood": err} | _read(logs)
            told = "\n".join(f"-- {name}:\n{text[-SHOWN:]}" for name, text in parts.items())
            pytest.fail(f"{' '.join(words)}\ndid not end in {timeout:g} s\n{told}", pytrace=False)
        except BaseException:
            _end(process.pid)
            raise
    return subprocess.CompletedProcess(words, process.wait(), out, err)


def _end(pid: int) -> None:
    """End it and all that it started; each that can says first where it stands."""
    first = psutil.Process(pid)
    # A launcher ends its processes as soon as one of them has ended, so it is asked last.
    family = [*reversed(first.children(recursive=True)), first]
    for request in (signal.SIGABRT, signal.SIGKILL):
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(request)
        _, family = psutil.wait_procs(family, timeout=GRACE)


def _read(logs: Path | None) -> dict[str, str]:
    files = sorted(logs.iterdir()) if logs is not None and logs.is_dir() else []
    return {path.name: path.read_text(errors="replace") for path in files}
