"""Directories of a run: writable, used by one training at a time, replaced atomically, checkpoints elsewhere."""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from stayfinite.errors import UsageError
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.settings import Refusing


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
    with Refusing(f"{flag} {path}", "name a file in a writable directory"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.open("a", encoding="utf-8").close()
        if not there:
            place.unlink()


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
    with Refusing(f"{flag} {directory}: cannot write in {nearest}", fix):
        tempfile.TemporaryDirectory(dir=nearest, prefix=".stayfinite-").cleanup()


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


@contextmanager
def replacing(path: Path, newline: str | None = None) -> Iterator[IO[str]]:
    """A text file that takes the place of this one when it is complete."""
    aside = path.with_name(f"{path.name}.new")
    with aside.open("w", encoding="utf-8", newline=newline) as file:
        yield file
    aside.replace(path)


def mend(directory: Path) -> None:
    """Undo an interrupted replacement."""
    old = directory.with_name(f"{directory.name}.old")
    if old.exists() and not directory.exists():
        old.rename(directory)


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
    with Refusing(f"--checkpoint-dir {directory}", "name a writable directory"):
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


def remove_checkpoints(output: Path) -> int:
    """Delete the checkpoints of a run and return their number. Other files are kept."""
    link = output / NAME
    if not link.is_dir():
        return 0
    found = [path for path in link.iterdir() if path.is_dir() and path.name.startswith("step-")]
    for path in found:
        shutil.rmtree(path)
    return len(found)


LOCK = ".lock"


@contextmanager
def alone(output: Path, place: Place) -> Iterator[None]:
    """Hold the directory while training, on rank 0. The system lets it go when the process ends, however it ends.

    Raises:
        UsageError: another process holds it; on every rank.
    """
    with ExitStack() as held:
        place.by_first(lambda: _hold(output, held))
        yield


def _hold(output: Path, held: ExitStack) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    output.mkdir(parents=True, exist_ok=True)
    file = held.enter_context((output / LOCK).open("a+", encoding="utf-8"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        other = file.read().strip()
        raise UsageError(
            f"another process is training in {output}" + (f": {other}" if other else ""),
            fix="wait until it ends, stop it, or choose another --output-dir",
        ) from None
    except OSError:  # a file system without locks
        return
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
