"""Write report.html at the end and after every incident, in the background; failures never stop training."""

import threading
from pathlib import Path

REPORT = "report.html"

SOON = 1.0
"""Seconds between an event and the page that shows it, so close events share a page."""

LONGEST_WAIT = 30.0
"""Longest wait at the end of a run for a page in progress."""


class Reporter:
    """Draws the page of a run directory. Never raises.

    Arguments:
        directory: run directory; None for no page.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._thread: threading.Thread | None = None
        self._reason = ""
        self._turn = threading.Lock()
        """Guards the next two."""
        self._wanted = False
        self._under_way = False
        self._pen = threading.Lock()
        """Held while a page is put in place."""
        self._over = False
        self._ended = threading.Event()
        """Set at the end of the run: only its last page matters then."""

    def soon(self) -> None:
        """Draw the page in a thread, or again after the one in progress. Thread-safe."""
        if self._directory is None:
            return
        with self._turn:
            self._wanted = True
            if self._under_way:
                return
            self._thread = threading.Thread(target=self._later, name="stayfinite-report", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # no thread available, or the interpreter is shutting down
                self._thread, self._reason = None, str(error)
            else:
                self._under_way = True

    def finish(self) -> bool:
        """Draw the last page now; return whether it exists."""
        if self._directory is None:
            return False
        self._ended.set()
        if self._thread is not None:
            self._thread.join(LONGEST_WAIT)
        return self._draw(last=True)

    def failure(self) -> str:
        """Why the page could not be drawn, reported once; empty on success."""
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
            # Loaded only if there is something to draw.
            from stayfinite.guard.telling.showing import guarded_run
            from stayfinite.report.page.data import page_data
            from stayfinite.report.page.html import write_page

            data = page_data([guarded_run(self._directory)])
            with self._pen:
                # A page started before the end must not replace the last one.
                if last or not self._over:
                    write_page(data, self._directory / REPORT)
                self._over = self._over or last
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"
            return False
        return True
