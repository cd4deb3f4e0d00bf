"""rich's console on standard output, for commands whose reader may leave early (`| head`)."""

from __future__ import annotations

from rich.console import Console


class StandardOutput(Console):
    """Lets whoever called it know that nobody reads any more; rich would end the program, as if it had failed."""

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise BrokenPipeError("nobody reads standard output any more")
