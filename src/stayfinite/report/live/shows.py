"""Choose how runs are shown: a terminal view, plain lines, or JSON."""

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
"""Terminals that cannot redraw; they get lines, like a pipe."""

REDRAWN = 0.5
"""Minimum seconds between redraws."""


@contextmanager
def chosen_show(*, as_json: bool, url: str = "") -> Iterator[Show]:
    """Yield the function that shows runs. On exit the terminal is restored, with the last view on it.

    Arguments:
        as_json: write JSON lines.
        url: of the live page, printed first.
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
