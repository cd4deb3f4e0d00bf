"""Write files with known content: hashed while writing, and synced to disk.

Tensors are written directly from their memory in pieces: no second copy is made, and the GIL is free while a piece is
hashed or written, so a thread can do this beside training.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.errors import StateError
from stayfinite.state.tree import STORED

PIECE = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """Size and hash of a file."""

    bytes: int
    sha256: str

    def to_json(self) -> dict[str, int | str]:
        """As in a manifest."""
        return {"bytes": self.bytes, "sha256": self.sha256}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Written:
    """Write a safetensors file from host tensors.

    Raises:
        OSError: it could not be written; the file is invalid.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    end = 0
    for name, tensor in plain.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": STORED[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return _write(path, [struct.pack("<Q", len(text)) + text, *map(_content, plain.values())])


def write_bytes(path: Path, content: bytes) -> Written:
    """Write a whole file.

    Raises:
        OSError: it could not be written; the file is invalid.
    """
    return _write(path, [content])


def read_back(path: Path) -> Written:
    """Size and hash of a file on disk.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256")
        return Written(bytes=file.tell(), sha256=digest.hexdigest())


def check_file(path: Path, expected: Mapping[str, Any]) -> None:
    """Compare a file with its entry in a manifest.

    Raises:
        StateError: the message says what differs.
    """
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise StateError(f"{path.name} has {size} bytes, expected {expected['bytes']}")
        if read_back(path).sha256 != expected["sha256"]:
            raise StateError(f"{path.name} was modified: its hash differs")
    except FileNotFoundError:
        raise StateError(f"{path.name} is missing") from None
    except OSError as error:
        raise StateError(f"cannot read {path.name}: {error.strerror or error}") from error


def sync_directory(path: Path) -> None:
    """Sync a directory's entries to disk, so a rename survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, contents: Iterable[bytes | memoryview]) -> Written:
    digest, size = hashlib.sha256(), 0
    with path.open("wb", buffering=0) as file:
        for content in contents:
            view = memoryview(content)
            for start in range(0, len(view), PIECE):
                piece = view[start : start + PIECE]
                digest.update(piece)
                while piece:
                    piece = piece[file.write(piece) :]
            size += len(view)
        os.fsync(file.fileno())
    return Written(bytes=size, sha256=digest.hexdigest())


def _content(tensor: Tensor) -> memoryview:
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B") if size else memoryview(b"")
