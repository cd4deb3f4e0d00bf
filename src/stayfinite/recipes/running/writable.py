"""Files and directories that are written in the course of long work: whether they can be is found out before it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stayfinite.errors import UsageError


def require_writable(path: str | Path, flag: str) -> None:
    """Refuse a file that could not be written; one that is there stays as it is, and no new one is left behind.

    Arguments:
        path: of the file; directories on the way to it are made.
        flag: that named it.

    Raises:
        UsageError: it is a directory, or lies where nothing can be written.
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
    """Refuse a directory in which nothing could be written; one that is not there yet is not made.

    Arguments:
        directory: where a program is going to write.
        flag: that named it.

    Raises:
        UsageError: it, or something on the way to it, is a file or cannot be written to.
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
