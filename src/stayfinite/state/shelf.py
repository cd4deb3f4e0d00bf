"""A directory of checkpoints: names, order, retention and cleanup.

A checkpoint is ``step-00000500``, or ``step-00000500.1`` if that step was saved again after a rollback. While being
written it is ``.step-00000500.partial-PID-BIRTH-HOST-NUMBER``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import StateError

NAME = "manifest.json"
VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Table of contents of one checkpoint."""

    step: int
    """Last step that it contains."""

    serial: int
    """Increases with every checkpoint of a directory. After a rollback the newest one may have a lower step."""

    ranks: int
    """Number of processes that wrote it."""

    sharded: bool
    """Whether tensors are sharded over several files."""

    written_as: str
    """Name of the directory while it was written."""

    keys_digest: str
    """Fingerprint of the architecture: names, shapes and dtypes of parameters and buffers."""

    files: dict[str, dict[str, Any]]
    """Size and SHA-256 of every other file."""

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, "step": self.step, "good": True, **asdict(self)}, indent=1)


def read_manifest(checkpoint: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        StateError: it is missing, or does not mark the checkpoint as good.
    """
    try:
        record = json.loads((checkpoint / NAME).read_text(encoding="utf-8"))
        if not isinstance(record, dict) or record.get("version") != VERSION:
            raise StateError(
                f"its manifest has version {dict(record).get('version')!r}; this stayfinite reads {VERSION}"
            )
        if record["good"] is not True:
            raise StateError("its manifest does not mark it as good")
        files = {name: {"bytes": each["bytes"], "sha256": each["sha256"]} for name, each in record["files"].items()}
        if any("/" in name or name.startswith(".") for name in files):
            raise StateError("its manifest names files outside its directory")
        return Manifest(
            step=int(record["step"]),
            serial=int(record["serial"]),
            files=files,
            keys_digest=str(record["keys_digest"]),
            ranks=int(record["ranks"]),
            sharded=bool(record["sharded"]),
            written_as=str(record["written_as"]),
        )
    except FileNotFoundError:
        raise StateError("it has no manifest: writing was interrupted") from None
    except OSError as error:
        raise StateError(f"cannot read it: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError("its manifest is damaged") from error


FINISHED = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
PARTIAL = re.compile(r"\.step-\d{8,}\.partial-(?P<pid>\d+)-(?P<birth>\d+)-(?P<host>.+)-\d+")
TRASH = ".trash-"
STALE_AFTER = 24 * 3600.0
"""Seconds after which an unfinished checkpoint of another machine is considered dead."""


def partial_name(step: int, number: int, token: str) -> str:
    """Name of a checkpoint while being written, the ``number``-th of the process with this token."""
    return f".step-{step:08d}.partial-{token}-{number}"


def own_token() -> str:
    """Identifies this process, even among processes with the same PID over time."""
    return f"{os.getpid()}-{_birth(os.getpid())}-{socket.gethostname()}"


def finished(directory: Path) -> list[tuple[Path, Manifest]]:
    """Good checkpoints with a readable manifest, newest first."""
    found = []
    for path in _entries(directory):
        if FINISHED.fullmatch(path.name):
            with contextlib.suppress(StateError):
                found.append((path, read_manifest(path)))
    return sorted(found, key=lambda each: each[1].serial, reverse=True)


def doubtful(directory: Path) -> list[tuple[Path, str]]:
    """Entries that look like checkpoints but have no good manifest, with the reason."""
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
    """Give a finished checkpoint its final name, without replacing another."""
    again = 0
    while True:
        final = partial.parent / (f"step-{step:08d}" + (f".{again}" if again else ""))
        if not final.exists():
            partial.rename(final)
            return final
        again += 1


def keep_last(directory: Path, count: int) -> list[Path]:
    """Remove all but the newest good checkpoints; call it after the newest was verified.

    Entries without a manifest are left alone.
    """
    removed = []
    for path, _ in finished(directory)[count:]:
        # Rename first: a kill halfway must not leave what looks like a checkpoint.
        trash = directory / f"{TRASH}{path.name}-{os.getpid()}"
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)
        removed.append(path)
    return removed


def sweep(directory: Path) -> list[Path]:
    """Remove leftovers of processes that ended while writing or removing a checkpoint."""
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
    # In a restarted container the new process often has the same PID.
    return _birth(int(pid)) != birth


def _birth(pid: int) -> str:
    """Start time of a process in clock ticks; 0 if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"
