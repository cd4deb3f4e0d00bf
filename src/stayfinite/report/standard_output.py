"""rich console on standard output, for commands whose reader may leave early (`| head`)."""

import os
from typing import Any

from rich.console import Console

UNBROKEN = 10_000
"""Width if not a terminal: lines stay whole for `grep` and copying."""


class StandardOutput(Console):
    """Raises BrokenPipeError when the reader leaves; rich would exit with an error.

    In a pipe or file nothing is wrapped unless `COLUMNS` is set, and trailing blanks are removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._on_screen = self.file.isatty()
        if not self._on_screen and not os.environ.get("COLUMNS", "").isdigit():
            self.width = UNBROKEN

    def print(self, *objects: Any, **how: Any) -> None:
        """Print, without trailing blanks if not on a terminal."""
        if self._on_screen:
            super().print(*objects, **how)
            return
        with self.capture() as captured:
            super().print(*objects, **how)
        lines = captured.get().split("\n")
        self.file.write("\n".join(line.rstrip(" ") for line in lines))
        self.file.flush()

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise BrokenPipeError("standard output was closed")
