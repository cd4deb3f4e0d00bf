"""The files of an incident: which one holds what, written aside and named when all of them are safe.

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
"""Of incident.json."""

INCIDENT, AUTOPSY, REPLAY = "incident.json", "autopsy.json", "replay.json"
BATCH, RNG, OPTIMIZER = "batch.json", "rng.json", "optimizer.json"
BATCH_TENSORS, OPTIMIZER_TENSORS = "batch.safetensors", "optimizer.safetensors"
WEIGHTS, GOOD = "weights.safetensors", "good.safetensors"
NUMBERED = re.compile(r"\d{4,}")


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An incident that is about to be written: everything on the host, and nobody else changes it."""

    step: int
    record: Mapping[str, Any]
    """incident.json but for its version and its files."""
    trees: Mapping[str, Any] = field(default_factory=dict)
    """Files of JSON by name, each without a tensor in it."""
    tensors: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Files of tensors by name."""
    ready: Callable[[], None] = lambda: None
    """Waits for tensors that are still on their way."""
    done: Callable[[], None] = lambda: None
    """Is called when the tensors are needed no longer."""

    @property
    def nbytes(self) -> int:
        """The size of its tensors."""
        return sum(t.numel() * t.element_size() for held in self.tensors.values() for t in held.values())


def incidents_in(directory: Path) -> list[Path]:
    """The incidents of a run, the oldest first."""
    try:
        found = [path for path in directory.iterdir() if NUMBERED.fullmatch(path.name) and path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda path: int(path.name))


def write_incident(directory: Path, number: int, draft: Draft, token: str) -> Path:
    """Write an incident aside, bring it to the disk, and give it its number, or the next one that is free.

    Raises:
        OSError: disk trouble; nothing is left of it.
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
    """Put autopsy.json into an incident, in place of an earlier one; at any moment one of the two is there.

    Arguments:
        incident: its directory.
        record: of the autopsy.
        name: of the file; ``REPLAY`` where the run's own autopsy is kept.

    Raises:
        OSError: disk trouble; an earlier one is still there.
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
    """The generators as plain JSON."""
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
                # Another process may have put its own there since.
                if not final.exists():
                    raise
            else:
                return final
        number += 1
