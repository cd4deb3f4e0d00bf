"""Lifetime of a guard."""

from __future__ import annotations

from typing import Any, TypeVar

from stayfinite.errors import GuardClosed, TrainingStopped
from stayfinite.guard.incidents.incidents import Incidents
from stayfinite.guard.incidents.replays import Replays
from stayfinite.guard.ranks.progress import Progress
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.recovering.saving import Saving
from stayfinite.guard.supervised import leave_word, use_exit_code
from stayfinite.guard.telling.recorder import Recorder

Stopped = TypeVar("Stopped", bound=TrainingStopped)


class Lifetime:
    """Open until closed, stopped, or the loop fails; ends once, after everything is written."""

    over: str
    """Why no further step is taken; empty while open."""

    def __init__(
        self,
        ranks: Ranks,
        recorder: Recorder,
        incidents: Incidents,
        saving: Saving | None,
        replays: Replays,
        progress: Progress,
    ) -> None:
        self._ranks = ranks
        self._progress = progress
        self._recorder = recorder
        self._incidents = incidents
        self._saving = saving
        self._replays = replays
        self.over = ""

    def check_open(self) -> None:
        if self.over:
            raise GuardClosed(
                f"the guard takes no more steps: {self.over}",
                fix="build a new Guard; load_state_dict() to continue from this one",
            )

    def hurry(self) -> None:
        """Start nothing that takes long, because the loop has failed."""
        self._incidents.hurry()
        if self._saving is not None:
            self._saving.hurry()

    def stop(self, error: Stopped, step: int, reason: str) -> Stopped:
        """End the guard with this error and return it; if uncaught, it sets the exit code."""
        if not self.over:
            # First of all: writing everything may take longer than a launcher waits.
            leave_word("stopped", step, code=error.exit_code, reason=reason)
            self.finish("stopped", step, reason, exit_code=error.exit_code)
        use_exit_code(error)
        return error

    def finish(self, event: str, step: int, reason: str, **details: Any) -> None:
        """Wait for pending work and record the end."""
        self.over = reason
        self._ranks.stop_looking()
        self._progress.stop()
        if self._saving is not None:
            self._saving.tell(wait=True)
        self._incidents.finish()
        self._replays.finish(step)
        self._recorder.finish(event, step, reason, **details)
