"""An incident read from disk: verified first, loaded on demand. Nothing in it is executed or unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stayfinite.autopsy.incidents.batch_form import ANOTHER, put_together
from stayfinite.autopsy.incidents.incident_files import (
    BATCH,
    BATCH_TENSORS,
    GOOD,
    INCIDENT,
    OPTIMIZER,
    OPTIMIZER_TENSORS,
    RNG,
    VERSION,
    WEIGHTS,
)
from stayfinite.errors import StateError
from stayfinite.state.tree import decode
from stayfinite.state.writer import read_back

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
            size = (path / name).stat().st_size
            if size != expected["bytes"]:
                raise _damaged(path, f"{name} has {size} bytes, expected {expected['bytes']}")
            if read_back(path / name).sha256 != expected["sha256"]:
                raise _damaged(path, f"{name} was modified: its hash differs")
        except FileNotFoundError:
            raise _damaged(path, f"{name} is missing") from None
        except OSError as error:
            raise _damaged(path, f"cannot read {name}: {error.strerror or error}") from error
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
