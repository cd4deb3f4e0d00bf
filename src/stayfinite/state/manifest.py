"""Manifest of a checkpoint; written last, so a checkpoint without one is incomplete."""

from __future__ import annotations

import json
from dataclasses import dataclass
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

    files: dict[str, dict[str, Any]]
    """Size and SHA-256 of every other file."""

    keys_digest: str
    """Fingerprint of the architecture: names, shapes and dtypes of parameters and buffers."""

    ranks: int
    """Number of processes that wrote it."""

    sharded: bool
    """Whether tensors are sharded over several files."""

    written_as: str
    """Name of the directory while it was written."""

    def to_json(self) -> str:
        record = {
            "version": VERSION,
            "step": self.step,
            "good": True,
            "serial": self.serial,
            "ranks": self.ranks,
            "sharded": self.sharded,
            "written_as": self.written_as,
            "keys_digest": self.keys_digest,
            "files": self.files,
        }
        return json.dumps(record, indent=1)


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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"its manifest is damaged: {type(error).__name__}: {error}") from error
