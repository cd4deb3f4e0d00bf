"""The way in which runs are shown: a view on a terminal, lines in a pipe, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stayfinite.core.run_status import RunStatus
from stayfinite.core.schema_names import tagged
from stayfinite.report.live.lines import JsonLines, PlainLines
from stayfinite.report.live.screen import screen

Show = Callable[[Sequence[RunStatus]], None]

UNMOVING = ("dumb", "unknown")
"""Terminals on which nothing that was written can be written over: they get lines, as a pipe does."""

REDRAWN = 0.5
"""Seconds between two drawings at least; clocks are redrawn every second."""


@contextmanager
def chosen_show(*, as_json: bool, url: str = "") -> Iterator[Show]:
    """Yields what shows the runs; on leaving, a terminal is as it was, with the last view on it.

    Arguments:
        as_json: for programs.
        url: of the live page, which is told first.
    """
    if as_json:
        if url:
            _write(json.dumps(tagged("address", {"url": url})))
        yield JsonLines(_write).show
    elif sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in UNMOVING:
        with _view(url) as show:
            yield show
    else:
        if url:
            _write(f"{url} (read-only; Ctrl-C ends it)")
        yield PlainLines(_write).show


@contextmanager
def _view(url: str) -> Iterator[Show]:
    from rich.live import Live

    from stayfinite.report.standard_output import StandardOutput

    console = StandardOutput()
    foot = f"{url} (read-only)  Ctrl-C ends it" if url else "Ctrl-C ends it"
    drawn = 0.0
    newest: Sequence[RunStatus] = ()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(statuses: Sequence[RunStatus]) -> None:
            nonlocal drawn, newest
            newest = statuses
            if time.monotonic() - drawn >= REDRAWN:
                drawn = time.monotonic()
                live.update(screen(statuses, console, foot=foot), refresh=True)

        try:
            yield show
        finally:
            live.update(screen(newest, console), refresh=True)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
