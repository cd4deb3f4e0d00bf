"""Check early that output paths are writable."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stayfinite.errors import UsageError


def require_writable(path: str | Path, flag: str) -> None:
    """Refuse an unwritable file. Leaves an existing one unchanged, and no new one.

    Arguments:
        path: parent directories are created.
        flag: that named it.

    Raises:
        UsageError: a directory, or not writable.
    """
    place = Path(path)
    there = place.exists()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8"):
            pass
        if not there:
            place.unlink()
    except OSError as error:
        raise UsageError(
            f"{flag} {path}: {error.strerror or error}", fix="name a file in a writable directory"
        ) from error


def require_room(directory: str | Path, flag: str = "--output-dir") -> None:
    """Refuse an unwritable directory. Does not create it.

    Arguments:
        flag: that named it.

    Raises:
        UsageError: it or a parent is a file, or not writable.
    """
    place = Path(directory).absolute()
    nearest = next(each for each in (place, *place.parents) if each.exists() or each.is_symlink())
    fix = "name a writable or new directory"
    if not nearest.is_dir():
        raise UsageError(f"{flag} {directory}: {nearest} is a file", fix=fix)
    try:
        with tempfile.TemporaryDirectory(dir=nearest, prefix=".stayfinite-"):
            pass
    except OSError as error:
        raise UsageError(
            f"{flag} {directory}: cannot write in {nearest}: {error.strerror or error}", fix=fix
        ) from error
