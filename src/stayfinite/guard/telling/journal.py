"""The run directory: what was launched, a line a step, a line an event. Never a reason for training to stop.

A line is written by one system call at the end of the file. A kill or a power cut can tear the last line only (Linux
may stop a killed process's write at the end of a memory page); the next start removes the torn part. When the disk is
full or the directory cannot be written, a warning is given once, lines are dropped, and writing is tried again from
time to time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RETRY_AFTER = 30.0
"""Seconds between attempts to write again after a failure."""

TAIL = 1 << 20
"""Bytes at a file's end that are searched for its last whole line."""


class JournalWarning(UserWarning):
    """The run directory could not be written; training goes on without it."""


def now() -> str:
    """The present moment, in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Journal:
    """Writes the files of one run directory, or nothing at all where there is none."""

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self.directory = None if directory is None else Path(directory)
        self._files: dict[str, int] = {}
        self._warned = False
        self._retry_at = 0.0

    def line(self, name: str, record: Mapping[str, Any]) -> None:
        """Append one JSON object to a file of lines."""
        if self.directory is None or time.monotonic() < self._retry_at:
            return
        try:
            line = f"{json.dumps(record, ensure_ascii=False, default=str)}\n"
            # What UTF-8 cannot hold, half a surrogate pair, becomes the escape that JSON has for it.
            _append(self._open(name), line.encode(errors="backslashreplace"))
        except OSError as error:
            self._failed(error)

    def whole(self, name: str, content: bytes) -> None:
        """Write or replace a file so that at any moment either the old or the new one is there."""
        if self.directory is None or time.monotonic() < self._retry_at:
            return
        aside = self.directory / f".{name}.{os.getpid()}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(content)
            aside.replace(self.directory / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            self._failed(error)

    def set_aside(self, name: str) -> None:
        """Keep a file of an earlier launch under a numbered name, if there is one."""
        if self.directory is None:
            return
        stem, suffix = Path(name).stem, Path(name).suffix
        number = 1
        with contextlib.suppress(OSError):
            while (kept := self.directory / f"{stem}-{number}{suffix}").exists():
                number += 1
            (self.directory / name).rename(kept)

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the directory as it is now; empty when there is none or it cannot be read."""
        if self.directory is None:
            return {}
        try:
            content = json.loads((self.directory / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    @property
    def has_gaps(self) -> bool:
        """Whether something could not be written."""
        return self._warned

    def _open(self, name: str) -> int:
        if name in self._files and not os.fstat(self._files[name]).st_nlink:
            # Somebody has deleted the file: what is written to it now would be lost.
            os.close(self._files.pop(name))
        if name not in self._files:
            assert self.directory is not None
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _cut_torn_line(descriptor)
            self._files[name] = descriptor
        return self._files[name]

    def _failed(self, error: OSError) -> None:
        self.close()
        self._retry_at = time.monotonic() + RETRY_AFTER
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"cannot write to {self.directory}: {error.strerror or error}. Training continues unrecorded; next "
                f"try in {RETRY_AFTER:.0f} s.",
                JournalWarning,
                stacklevel=2,
            )


def _append(descriptor: int, line: bytes) -> None:
    written = os.write(descriptor, line)
    if written < len(line):
        # The disk filled up within the line: take the piece back, so that no torn line stays.
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cut_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    start = max(0, size - TAIL)
    tail = os.pread(descriptor, size - start, start)
    if tail and not tail.endswith(b"\n"):
        os.ftruncate(descriptor, start + tail.rfind(b"\n") + 1)
