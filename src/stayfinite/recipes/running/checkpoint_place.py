"""Keep checkpoints outside the run directory; remove them when no longer needed."""

from __future__ import annotations

import shutil
from pathlib import Path

from stayfinite.errors import UsageError

NAME = "checkpoints"


def keep_checkpoints_in(output: Path, directory: str | None) -> None:
    """Write checkpoints to another directory, linked from the run directory. None changes nothing.

    Raises:
        UsageError: the run already has checkpoints elsewhere, or the directory cannot be created.
    """
    if directory is None:
        return
    place, link = Path(directory).absolute(), output / NAME
    if place == link.absolute():
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        place.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() and not link.exists():
            link.unlink()  # dangling
        if link.exists():
            if link.resolve() == place.resolve():
                return
            if link.is_symlink() or any(link.iterdir()):
                raise UsageError(
                    f"--checkpoint-dir {directory}: this run keeps its checkpoints in {link.resolve()}",
                    fix="move them there, or keep the old --checkpoint-dir",
                )
            link.rmdir()
        link.symlink_to(place, target_is_directory=True)
    except OSError as error:
        raise UsageError(
            f"--checkpoint-dir {directory}: {error.strerror or error}", fix="name a writable directory"
        ) from error


def remove_checkpoints(output: Path) -> int:
    """Delete the checkpoints of a run and return their number. Other files are kept."""
    link = output / NAME
    if not link.is_dir():
        return 0
    found = [path for path in link.iterdir() if path.is_dir() and path.name.startswith("step-")]
    for path in found:
        shutil.rmtree(path)
    return len(found)
