"""report.html of a run: written at its end and after every incident, beside training and never a reason to fail."""

from __future__ import annotations

import threading
from pathlib import Path

REPORT = "report.html"

SOON = 1.0
"""Seconds between an event and the page that shows it, so that events close together are drawn together."""

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
        self._turn = threading.Lock()
        """Held by whoever looks at or changes the next two."""
        self._wanted = False
        self._under_way = False
        self._pen = threading.Lock()
        """Held by whoever puts a page in its place."""
        self._over = False
        self._ended = threading.Event()
        """The run has ended: the page of its end needs no page before it."""

    def soon(self) -> None:
        """Something is worth a look: draw the page in a thread, once more if one is under way. Any thread may ask."""
        if self._directory is None:
            return
        with self._turn:
            self._wanted = True
            if self._under_way:
                return
            self._thread = threading.Thread(target=self._later, name="stayfinite-report", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # no further thread can be had, or the interpreter is ending
                self._thread, self._reason = None, str(error)
            else:
                self._under_way = True

    def finish(self) -> bool:
        """The run has ended: draw the page now; whether it is there."""
        if self._directory is None:
            return False
        self._ended.set()
        if self._thread is not None:
            self._thread.join(LONGEST_WAIT)
        return self._draw(last=True)

    def failure(self) -> str:
        """Why the page could not be drawn, told once; empty where it could."""
        reason, self._reason = self._reason, ""
        return reason

    def _later(self) -> None:
        while not self._ended.wait(SOON):
            with self._turn:
                self._wanted = False
            self._draw()
            with self._turn:
                if not self._wanted:
                    self._under_way = False
                    return

    def _draw(self, *, last: bool = False) -> bool:
        assert self._directory is not None
        try:
            # What it takes to read and judge a run is loaded when there is something to draw.
            from stayfinite.guard.telling.showing import guarded_run
            from stayfinite.report.page.data import page_data
            from stayfinite.report.page.file import write_page

            data = page_data([guarded_run(self._directory)])
            with self._pen:
                # A page that was begun before the end and comes after it would show the run as it was then.
                if last or not self._over:
                    write_page(data, self._directory / REPORT)
                self._over = self._over or last
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"
            return False
        return True
