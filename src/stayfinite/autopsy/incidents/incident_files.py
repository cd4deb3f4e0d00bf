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
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stayfinite.autopsy.incidents.batch_form import ANOTHER, put_together
from stayfinite.errors import StateError
from stayfinite.state import shelf
from stayfinite.state.tree import decode, encode
from stayfinite.state.writer import Written, check_file, sync_directory, write_bytes, write_tensors

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


NEEDED = ("step", "decision", "trigger", "precision", "device", "batch", "weights", "files")


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident:
    """A refused step that can be run again. Its files were verified when it was read."""

    path: Path
    record: Mapping[str, Any]
    """Content of incident.json."""

    @property
    def step(self) -> int:
        """The refused step."""
        return int(self.record["step"])

    @property
    def trigger(self) -> str:
        """Code of what was wrong."""
        return str(self.record["trigger"])

    @property
    def device(self) -> torch.device:
        """Device of the step; elsewhere only its type matters."""
        return torch.device(str(self.record["device"]).split(" ", 1)[0])

    def batch(self, device: torch.device | None = None) -> Any:
        """The batch; tensors of the model's device go to this one, those on the host stay there."""
        about = self.record["batch"]
        held = self._tensors(BATCH_TENSORS)
        kept_home = self.device.type != "cpu"
        for name, tensor in held.items():
            stays = kept_home and str(about.get("devices", {}).get(name, "")).startswith("cpu")
            if device is not None and not stays:
                held[name] = tensor = tensor.to(device)
            if name in about.get("requires_grad", ()):
                tensor.requires_grad_(True)
        return put_together(self._tree(BATCH), held)

    def rng(self) -> dict[str, Any]:
        """Generator states before the forward pass."""
        state = decode(self._tree(RNG), {})
        if not isinstance(state, dict):
            raise _damaged(self.path, f"{RNG} holds no random states")
        return state

    def weights(self) -> dict[str, Tensor] | None:
        """Parameters and buffers by name; None if they were too large to save."""
        return self._tensors(WEIGHTS) if WEIGHTS in self.record["files"] else None

    def good_weights(self) -> dict[str, Tensor] | None:
        """Weights of the last known-good state, if any."""
        return self._tensors(GOOD) if GOOD in self.record["files"] else None

    def optimizer_state(self) -> dict[str, Any] | None:
        """Result of ``survey_optimizer``, if it was small enough."""
        if OPTIMIZER not in self.record["files"]:
            return None
        state = decode(self._tree(OPTIMIZER), self._tensors(OPTIMIZER_TENSORS))
        return state if isinstance(state, dict) else None

    def _tree(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(self.path, f"cannot read {name}: {error}") from error

    def _tensors(self, name: str) -> dict[str, Tensor]:
        if name not in self.record["files"]:
            return {}
        try:
            held: dict[str, Tensor] = load_file(self.path / name)
        except (OSError, SafetensorError) as error:
            raise _damaged(self.path, f"cannot read {name}: {error}") from error
        return held


def read_incident(path: str | os.PathLike[str]) -> Incident:
    """Read an incident and verify all its files.

    Raises:
        StateError: not an incident, another version, or damaged; the message says which file and how.
    """
    path = Path(path)
    record = _record(path)
    for name, expected in record["files"].items():
        if "/" in name or name.startswith("."):
            raise StateError(
                f"{path} names a file outside its directory: {name}",
                fix=("the incident was tampered with: do not use it"),
            )
        try:
            check_file(path / name, expected)
        except StateError as error:
            raise _damaged(path, error.message) from error
        except (KeyError, TypeError) as error:
            raise _damaged(path, f"{INCIDENT} does not describe {name}") from error
    return Incident(path=path, record=record)


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads((path / INCIDENT).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise StateError(
            f"{path} is not an incident: {INCIDENT} is missing", fix="name a directory such as RUN/incidents/0001"
        ) from None
    except OSError as error:
        text = f"cannot read {path / INCIDENT}: {error.strerror or error}"
        raise StateError(text, fix="check the path and its permissions") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"{INCIDENT} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise _damaged(path, f"{INCIDENT} is not a JSON object")
    if record.get("version") != VERSION:
        raise StateError(
            f"{path} has version {record.get('version')!r}; this stayfinite reads {VERSION}",
            fix="read it with the stayfinite that wrote it",
        )
    missing = [name for name in NEEDED if name not in record]
    if missing or not isinstance(record["files"], dict) or not isinstance(record["batch"], dict):
        raise _damaged(path, f"{INCIDENT} lacks {', '.join(missing) or 'its files or its batch'}")
    return record


def _damaged(path: Path, what: str) -> StateError:
    return StateError(f"the incident {path} is damaged: {what}", fix=ANOTHER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Filed:
    """Result of writing an incident."""

    step: int
    path: Path | None
    """Directory of the incident; None if it could not be written."""
    error: Exception | None
    nbytes: int
    seconds: float
    """Time spent in the background."""


class Archive:
    """A run's directory of incidents.

    Arguments:
        directory: created if needed.
        most: most incidents of a run, including earlier launches.
    """

    def __init__(self, directory: Path, most: int) -> None:
        self.directory = directory
        self._most = most
        self._token = shelf.own_token()
        self._thread: threading.Thread | None = None
        self._filed: deque[Filed] = deque()
        self._paths: dict[int, Path] = {}
        self._number = 0
        self._under_way: set[int] = set()

    def number(self) -> int | None:
        """Number of the next incident; None if the run has reached its limit.

        Raises:
            OSError: the directory cannot be read.
        """
        # Pending ones first: one that is renamed meanwhile then counts exactly once.
        known = self._under_way.copy()
        known.update(int(path.name) for path in incidents_in(self.directory))
        if len(known) >= self._most:
            return None
        self._number = max([self._number, *known]) + 1
        return self._number

    def file(self, number: int, draft: Draft) -> None:
        """Start writing an incident under a number. Does not wait, and never raises for disk errors."""
        self._under_way.add(number)
        self._queue(lambda: self._write(number, draft))

    def attach(self, number: int, autopsy: Mapping[str, Any], done: Callable[[Exception | None], None]) -> None:
        """Add the autopsy to an incident once it is written; ``done`` gets the error or None, in the thread."""

        def write() -> None:
            if (path := self._paths.get(number)) is not None:
                try:
                    write_autopsy(path, autopsy)
                except OSError as error:
                    done(error)
                else:
                    done(None)

        self._queue(write)

    def collect(self, *, wait: bool = False) -> list[Filed]:
        """Results since the last call; with ``wait`` after everything is written."""
        if wait and self._thread is not None:
            self._thread.join()
            self._thread = None
        return [self._filed.popleft() for _ in range(len(self._filed))]

    def _queue(self, work: Callable[[], None]) -> None:
        before = self._thread

        def in_turn() -> None:
            if before is not None:
                before.join()
            work()

        # Not a daemon: a program that exits finishes its last incident.
        self._thread = threading.Thread(target=in_turn, name="stayfinite incident")
        self._thread.start()

    def _write(self, number: int, draft: Draft) -> None:
        begun = time.monotonic()
        path, trouble = None, None
        try:
            shelf.sweep(self.directory)
            path = self._paths[number] = write_incident(self.directory, number, draft, self._token)
        except Exception as error:
            # Training continues; the caller gets the error from collect().
            trouble = error
        finally:
            self._under_way.discard(number)
            draft.done()
        seconds = time.monotonic() - begun
        self._filed.append(Filed(step=draft.step, path=path, error=trouble, nbytes=draft.nbytes, seconds=seconds))
