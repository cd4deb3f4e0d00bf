"""Limits of a server: what it may read, how long a call may take, whether it may run programs."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from stayfinite.errors import UsageError

MEGABYTE = 1 << 20
LONGEST_PATH = 4096
MOST_ENTRIES = 20_000
"""Most entries to check in a directory tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Settings of one server."""

    roots: tuple[Path, ...]
    """Readable directories, resolved; relative paths start at the first."""
    allow_run: bool = False
    """Whether `doctor` and `replay` may run programs."""
    seconds: float = 60.0
    """Time limit of a call."""
    run_minutes: float = 10.0
    """Time limit of a `doctor` or `replay` call."""
    megabytes: int = 512
    """Largest file to read."""

    def path(self, given: str, *, any_size: bool = False) -> Path:
        """Resolve a path, if it may be read.

        Raises:
            UsageError: it is outside the roots, missing, too large, or not a plain file or directory.
        """
        place = self._inside(given)
        try:
            found = place.stat()
        except OSError as error:
            raise UsageError(f"{given!r}: {error.strerror or error}") from error
        if stat.S_ISDIR(found.st_mode):
            self._look_through(place, given)
        elif not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{given!r} is a device, a pipe or a socket", fix="name a plain file or a directory")
        elif found.st_size > self.megabytes * MEGABYTE and not any_size:
            raise UsageError(
                f"{given!r} has {found.st_size / MEGABYTE:,.0f} MB (limit {self.megabytes} MB)",
                fix="name a smaller part, or start the server with a larger --megabytes",
            )
        return place

    def directory(self, given: str | None) -> Path:
        """A working directory; by default the first root."""
        place = self.roots[0] if given is None else self._inside(given)
        if not place.is_dir():
            raise UsageError(f"{given!r} is not a directory")
        return place

    def command(self, given: str) -> str:
        """Check that no word of a command line names a place outside the roots.

        Raises:
            UsageError: one does, or it starts like a flag.
        """
        import shlex

        if given.lstrip().startswith("-"):
            raise UsageError(f"{given!r} starts like a flag", fix="give the whole command: python train.py --fp16")
        try:
            words = shlex.split(given)
        except ValueError as error:
            raise UsageError(f"{given!r} is not a command: {error}") from error
        for word in words:
            value = word.rpartition("=")[2]
            if "/" in value and (value.startswith(("/", "~")) or ".." in Path(value).parts):
                self._inside(value)
            elif os.path.exists(self.roots[0] / value):  # noqa: PTH110 - Path.exists raises where a word is too long
                self.path(value)
        return given

    def _inside(self, given: str) -> Path:
        if not given or "\0" in given or len(given) > LONGEST_PATH:
            raise UsageError(f"{given[:80]!r} is not a path")
        try:
            place = (self.roots[0] / given).resolve()
        except (OSError, RuntimeError) as error:  # a circular link
            raise UsageError(f"cannot resolve {given!r}: {error}") from error
        if not self._allowed(place):
            raise UsageError(f"{given!r} is outside the allowed roots", fix=self._how_to_allow())
        return place

    def _allowed(self, place: Path) -> bool:
        return any(place.is_relative_to(root) for root in self.roots)

    def _look_through(self, directory: Path, given: str) -> None:
        """Reject a directory that contains a link to the outside, or a special file."""
        left = MOST_ENTRIES
        for folder, folders, files in os.walk(directory):
            for name in (*folders, *files):
                left -= 1
                if not left:
                    raise UsageError(f"{given!r} has more than {MOST_ENTRIES:,} entries", fix="name one run in it")
                place = Path(folder, name)
                mode = place.lstat().st_mode
                if stat.S_ISLNK(mode) and not self._allowed(place.resolve()):
                    raise UsageError(f"{str(place)!r} is a link out of the allowed roots", fix=self._how_to_allow())
                if not (stat.S_ISLNK(mode) or stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                    raise UsageError(f"{str(place)!r} is a device, a pipe or a socket", fix="name the files themselves")

    def _how_to_allow(self) -> str:
        return f"allowed: {', '.join(map(str, self.roots))}; the user adds others with --root"
