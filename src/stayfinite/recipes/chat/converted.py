"""A GGUF file is read once: what it holds is kept as a plain model, from which later runs load in seconds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from stayfinite.recipes.running.directories import write_whole

PIECE = 1 << 20


def place_of(file: Path, dtype: torch.dtype, cache_dir: str | None) -> Path:
    """Where the plain model of a GGUF file is kept; another file, or another dtype, has another place."""
    marked = hashlib.blake2b(digest_size=8)
    size = file.stat().st_size
    marked.update(f"{size} {dtype}".encode())
    with file.open("rb") as opened:
        marked.update(opened.read(PIECE))
        opened.seek(max(0, size - PIECE))
        marked.update(opened.read(PIECE))
    cache = cache_dir or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "stayfinite" / "gguf" / f"{file.stem}-{marked.hexdigest()}"


def is_kept(place: Path) -> bool:
    """Whether a whole model lies there."""
    return (place / "config.json").is_file() and (place / "model.safetensors").is_file()


def keep(place: Path, save: Callable[[Path], None]) -> None:
    """Keep a model, whole or not at all; where nothing can be written, the file is read again next time."""
    with suppress(OSError):
        write_whole(place, save)
