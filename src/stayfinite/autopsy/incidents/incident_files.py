"""Files of an incident, written to a temporary directory and renamed when all are safe.

::

    incidents/0001/incident.json        what happened, with what, on what; size and SHA-256 of every file below
                   batch.json           the structure of the batch;   batch.safetensors its tensors
                   rng.json             the random number generators as they stood before the forward pass
                   weights.safetensors  parameters and buffers, where they are small enough
                   good.safetensors     those of the last known-good state
                   optimizer.json, optimizer.safetensors
                   autopsy.json         added when the autopsy is done
                   replay.json          of `stayfinite replay`, where there is an autopsy
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.state import shelf
from stayfinite.state.tree import encode
from stayfinite.state.writer import Written, sync_directory, write_bytes, write_tensors

VERSION = 1
"""Version of incident.json."""

INCIDENT, AUTOPSY, REPLAY = "incident.json", "autopsy.json", "replay.json"
BATCH, RNG, OPTIMIZER = "batch.json", "rng.json", "optimizer.json"
BATCH_TENSORS, OPTIMIZER_TENSORS = "batch.safetensors", "optimizer.safetensors"
WEIGHTS, GOOD = "weights.safetensors", "good.safetensors"
NUMBERED = re.compile(r"\d{4,}")


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An incident to be written, complete on the host."""

    step: int
    record: Mapping[str, Any]
    """incident.json without version and files."""
    trees: Mapping[str, Any] = field(default_factory=dict)
    """JSON files by name, without tensors."""
    tensors: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Tensor files by name."""
    ready: Callable[[], None] = lambda: None
    """Waits for tensors that are still being copied."""
    done: Callable[[], None] = lambda: None
    """Called when the tensors are no longer needed."""

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for held in self.tensors.values() for t in held.values())


def incidents_in(directory: Path) -> list[Path]:
    """Incidents of a run, oldest first."""
    try:
        found = [path for path in directory.iterdir() if NUMBERED.fullmatch(path.name) and path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda path: int(path.name))


def write_incident(directory: Path, number: int, draft: Draft, token: str) -> Path:
    """Write an incident to a temporary directory, sync it, and rename it to its number or the next free one.

    Raises:
        OSError: disk error; nothing is left behind.
    """
    partial = directory / shelf.partial_name(draft.step, number, token)
    try:
        partial.mkdir(parents=True)
        files: dict[str, Written] = {}
        for name, tree in draft.trees.items():
            files[name] = write_bytes(partial / name, json.dumps(tree).encode())
        draft.ready()
        for name, held in draft.tensors.items():
            files[name] = write_tensors(partial / name, held, {"format": "pt"})
        record = {
            "version": VERSION,
            **draft.record,
            "files": {name: written.to_json() for name, written in sorted(files.items())},
        }
        write_bytes(partial / INCIDENT, json.dumps(record, indent=1, default=str).encode(errors="backslashreplace"))
        sync_directory(partial)
        final = _put_up(partial, number)
        sync_directory(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return final


def write_autopsy(incident: Path, record: Mapping[str, Any], name: str = AUTOPSY) -> Path:
    """Write autopsy.json into an incident, replacing an earlier one atomically.

    Arguments:
        name: file name; ``REPLAY`` to keep the run's own autopsy.

    Raises:
        OSError: disk error; an earlier file is still there.
    """
    aside = incident / f".{name}.{os.getpid()}"
    try:
        write_bytes(aside, json.dumps(record, indent=1, default=str).encode(errors="backslashreplace"))
        aside.replace(incident / name)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    return incident / name


def rng_tree(rng: Mapping[str, Any]) -> Any:
    """Generator states as plain JSON."""
    encoded = encode(dict(rng))
    assert not encoded.tensors, "a random state holds numbers and bytes only"
    return encoded.tree


def _put_up(partial: Path, number: int) -> Path:
    while True:
        final = partial.parent / f"{number:04d}"
        if not final.exists():
            try:
                partial.rename(final)
            except OSError:
                # Another process may have taken the name.
                if not final.exists():
                    raise
            else:
                return final
        number += 1
