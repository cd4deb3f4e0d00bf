"""The run directory: run.json, one line per step, one line per event. Never stops training.

A line is one write at the end of the file. A kill or power cut can tear only the last line (Linux may end a killed
process's write at a page boundary); the next start removes it. If the disk is full or not writable, a warning is shown
once, lines are dropped, and writing is retried from time to time.
"""

import contextlib
import errno
import json
import os
import platform
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.autopsy.steps.surroundings import device_in_words
from stayfinite.core.policy import Policy
from stayfinite.core.records import VERSION
from stayfinite.measure.roster import Roster, whole_size

RETRY_AFTER = 30.0
"""Seconds between attempts after a failure."""

TAIL = 1 << 20
"""Bytes at the end of a file searched for its last complete line."""


class JournalWarning(UserWarning):
    """The run directory could not be written; training continues without it."""


def now() -> str:
    """Current time in UTC as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that may pass: a full disk at the start does not keep a run from training."""


def why_unwritable(directory: Path) -> str:
    """Why nothing can be written in a directory; empty if it can. Leaves no directory behind that was not there."""
    new: list[Path] = []
    try:
        new = [each for each in (directory, *directory.parents) if not each.exists()]
        if not new and not directory.is_dir():
            return "it is a file"
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".stayfinite-"):
            return ""
    except OSError as error:
        return "" if error.errno in FULL else error.strerror or f"{error}"
    except ValueError as error:
        return f"{error}"
    finally:
        for each in new:
            with contextlib.suppress(OSError, ValueError):
                each.rmdir()


class Journal:
    """Writes the files of one run directory, or nothing if there is none."""

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self.directory = None if directory is None else Path(directory)
        self._files: dict[str, int] = {}
        self._warned = False
        self._retry_at = 0.0
        self.wrote = False
        """Whether anything was written."""

    def line(self, name: str, record: Mapping[str, Any]) -> None:
        """Append one JSON object to a file of lines."""
        if self.directory is None or time.monotonic() < self._retry_at:
            return
        try:
            line = f"{json.dumps(record, ensure_ascii=False, default=str)}\n"
            # Lone surrogates become JSON escapes.
            _append(self._open(name), line.encode(errors="backslashreplace"))
            self.wrote = True
        except OSError as error:
            self._failed(error)

    def whole(self, name: str, content: bytes) -> None:
        """Write or replace a file atomically."""
        if self.directory is None or time.monotonic() < self._retry_at:
            return
        aside = self.directory / f".{name}.{os.getpid()}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(content)
            aside.replace(self.directory / name)
            self.wrote = True
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            self._failed(error)

    def set_aside(self, name: str) -> None:
        """Rename a file of an earlier launch to a numbered name, if there is one."""
        if self.directory is None:
            return
        stem, suffix = Path(name).stem, Path(name).suffix
        number = 1
        with contextlib.suppress(OSError):
            while (kept := self.directory / f"{stem}-{number}{suffix}").exists():
                number += 1
            (self.directory / name).rename(kept)

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file; empty if missing or unreadable."""
        if self.directory is None:
            return {}
        try:
            content = json.loads((self.directory / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    @property
    def has_gaps(self) -> bool:
        """Whether something could not be written."""
        return self._warned

    def _open(self, name: str) -> int:
        if name in self._files and not os.fstat(self._files[name]).st_nlink:
            # The file was deleted: further writes would be lost.
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
        # The disk filled up within the line: remove the partial line.
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cut_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    start = max(0, size - TAIL)
    tail = os.pread(descriptor, size - start, start)
    if tail and not tail.endswith(b"\n"):
        os.ftruncate(descriptor, start + tail.rfind(b"\n") + 1)


OF_INTEREST = (
    "stayfinite", "torch", "transformers", "accelerate", "peft", "lightning", "bitsandbytes", "numpy",
    "deepspeed", "megatron-core", "torchtitan", "ai2-olmo-core",
)  # fmt: skip
"""Packages whose versions are recorded."""


def launch_record(
    model: nn.Module,
    optimizer: Optimizer,
    roster: Roster,
    policy: Policy,
    max_norm: float | None,
    time: str,
    first_batch: str = "",
) -> dict[str, Any]:
    """Record of this launch."""
    record = {
        "time": time,
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "devices": sorted({device_in_words(device) for device, _ in roster.places}),
        "seed": torch.initial_seed(),
        "model": {
            "class": type(model).__name__,
            "parameters": sum(map(whole_size, model.parameters())),
            "trainable": sum(map(whole_size, roster.parameters)),
            "dtypes": dict(Counter(str(parameter.dtype).removeprefix("torch.") for parameter in roster.parameters)),
        },
        "optimizer": {
            "class": type(optimizer).__name__,
            "groups": [_settings(group) for group in optimizer.param_groups],
        },
        "max_norm": max_norm,
        "policy": policy.to_json(),
    }
    return record | {"data": {"first batch": first_batch}} if first_batch else record


def run_record(earlier: dict[str, Any], launch: dict[str, Any]) -> dict[str, Any]:
    """Add this launch to run.json; its other keys (recipe, config) stay."""
    launches = earlier.get("launches")
    return earlier | {"version": VERSION, "launches": [*(launches if isinstance(launches, list) else []), launch]}


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in OF_INTEREST:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in group.items() if isinstance(value, bool | int | float | str | tuple)}
    lr = group.get("lr")
    return plain | {"lr": lr if isinstance(lr, int | float) else str(lr), "tensors": len(group["params"])}
