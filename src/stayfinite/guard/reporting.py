"""report.html of a run: written at its end and after every incident, beside training and never a reason to fail."""

from __future__ import annotations

import threading
import time
from pathlib import Path

REPORT = "report.html"

SOON = 1.0
"""Seconds that an incident's files are given to arrive before the page is drawn."""

LONGEST_WAIT = 30.0
"""Seconds that the end of a run waits for a page that is being drawn."""


class Reporter:
    """Draws the page of a run directory. Nothing that goes wrong here is raised.

    Arguments:
        directory: of the run; None for no page at all.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._thread: threading.Thread | None = None
        self._reason = ""

    def soon(self) -> None:
        """Something has happened that is worth looking at: draw the page in a thread, unless one is about to."""
        if self._directory is None or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._later, name="stayfinite-report", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no further thread can be had, or the interpreter is ending
            self._thread, self._reason = None, str(error)

    def finish(self) -> bool:
        """The run has ended: draw the page now; whether it is there."""
        if self._directory is None:
            return False
        if self._thread is not None:
            self._thread.join(LONGEST_WAIT)
        return self._draw()

    def failure(self) -> str:
        """Why the page could not be drawn, told once; empty where it could."""
        reason, self._reason = self._reason, ""
        return reason

    def _later(self) -> None:
        time.sleep(SOON)
        self._draw()

    def _draw(self) -> bool:
        assert self._directory is not None
        try:
            # What it takes to read and judge a run is loaded when there is something to draw.
            from stayfinite.guard.showing import guarded_run
            from stayfinite.report.page.data import page_data
            from stayfinite.report.page.file import write_page

            write_page(page_data([guarded_run(self._directory)]), self._directory / REPORT)
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"
            return False
        return True
