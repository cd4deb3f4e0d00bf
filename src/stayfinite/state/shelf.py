"""A directory of checkpoints: names, order, what is kept and what is swept away.

A checkpoint is ``step-00000500``, or ``step-00000500.1`` when that step was saved again after a rollback. While it is
written it is ``.step-00000500.partial-PID-BIRTH-HOST-NUMBER``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
from pathlib import Path

from stayfinite.errors import StateError
from stayfinite.state.manifest import Manifest, read_manifest

FINISHED = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
PARTIAL = re.compile(r"\.step-\d{8,}\.partial-(?P<pid>\d+)-(?P<birth>\d+)-(?P<host>.+)-\d+")
TRASH = ".trash-"
STALE_AFTER = 24 * 3600.0
"""Seconds after which the unfinished checkpoint of a process on another machine is taken for dead."""


def partial_name(step: int, number: int, token: str) -> str:
    """The name of a checkpoint while it is written, the ``number``-th of a process that ``own_token`` describes."""
    return f".step-{step:08d}.partial-{token}-{number}"


def own_token() -> str:
    """What tells this process from all others, also from one that had or will have its number."""
    return f"{os.getpid()}-{_birth(os.getpid())}-{socket.gethostname()}"


def finished(directory: Path) -> list[tuple[Path, Manifest]]:
    """The checkpoints with a readable manifest that calls them good, the newest first."""
    found = []
    for path in _entries(directory):
        if FINISHED.fullmatch(path.name):
            with contextlib.suppress(StateError):
                found.append((path, read_manifest(path)))
    return sorted(found, key=lambda each: each[1].serial, reverse=True)


def doubtful(directory: Path) -> list[tuple[Path, str]]:
    """What looks like a checkpoint and has no manifest that calls it good, with the reason."""
    found = []
    for path in _entries(directory):
        if PARTIAL.fullmatch(path.name):
            found.append((path, "it is being written, or writing was interrupted"))
        elif FINISHED.fullmatch(path.name):
            try:
                read_manifest(path)
            except StateError as error:
                found.append((path, error.message))
    return sorted(found, reverse=True)


def put_up(partial: Path, step: int) -> Path:
    """Give a finished checkpoint its name. Nothing that has that name already is touched."""
    again = 0
    while True:
        final = partial.parent / (f"step-{step:08d}" + (f".{again}" if again else ""))
        if not final.exists():
            partial.rename(final)
            return final
        again += 1


def keep_last(directory: Path, count: int) -> list[Path]:
    """Remove all but the newest good checkpoints; to be called when the newest has just been verified.

    What has no manifest is left alone: it was not made here.
    """
    removed = []
    for path, _ in finished(directory)[count:]:
        # Renamed first: a kill half way through must not leave what looks like a checkpoint.
        trash = directory / f"{TRASH}{path.name}-{os.getpid()}"
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)
        removed.append(path)
    return removed


def sweep(directory: Path) -> list[Path]:
    """Remove what processes left behind that ended while writing or removing a checkpoint."""
    removed = []
    for path in _entries(directory):
        partial = PARTIAL.fullmatch(path.name)
        if path.name.startswith(TRASH) or (partial and _is_dead(path, **partial.groupdict())):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def _is_dead(path: Path, pid: str, birth: str, host: str) -> bool:
    if host != socket.gethostname():
        with contextlib.suppress(OSError):
            return time.time() - path.stat().st_mtime > STALE_AFTER
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    # In a container that is started again, the new process often has the old one's number.
    return _birth(int(pid)) != birth


def _birth(pid: int) -> str:
    """When a process was started, in the system's own count; 0 where that cannot be known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"
