"""Directories that are there as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def write_whole(directory: Path, save: Callable[[Path], None]) -> None:
    """Write a directory aside, then put it in its place; a kill at any moment leaves a whole one, old or new.

    Arguments:
        directory: its place; what was there before is gone afterwards.
        save: writes into the directory that it is given.
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
    """Put back what a kill between two renamings has left beside its place."""
    old = directory.with_name(f"{directory.name}.old")
    if old.exists() and not directory.exists():
        old.rename(directory)
