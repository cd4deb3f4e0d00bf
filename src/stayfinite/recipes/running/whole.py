"""Replace directories atomically."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def write_whole(directory: Path, save: Callable[[Path], None]) -> None:
    """Write a directory aside, then rename it. A kill at any moment leaves the old or the new one.

    Arguments:
        directory: replaced if it exists.
        save: writes into the directory it is given.
    """
    aside, old = (directory.with_name(f"{directory.name}.{end}") for end in ("new", "old"))
    mend(directory)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    save(aside)
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    aside.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def mend(directory: Path) -> None:
    """Undo an interrupted replacement."""
    old = directory.with_name(f"{directory.name}.old")
    if old.exists() and not directory.exists():
        old.rename(directory)
