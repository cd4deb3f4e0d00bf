"""rich's console on standard output, for commands whose reader may leave early (`| head`)."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console

UNBROKEN = 10_000
"""Columns of what is no terminal: a line there is as long as it is, for `grep` and for whoever pastes it."""


class StandardOutput(Console):
    """Lets whoever called it know that nobody reads any more; rich would end the program, as if it had failed.

    In a pipe or a file nothing is wrapped, unless `COLUMNS` asks for it, and no line ends in blanks.
    """

    def __init__(self) -> None:
        super().__init__()
        if not self.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
            self.width = UNBROKEN

    def print(self, *objects: Any, **how: Any) -> None:
        """As rich does it."""
        if self.is_terminal:
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
