"""Progress bars for slow reads: only on a terminal, after a second."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds before a bar appears."""


@contextmanager
def reading_progress(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield ``told(name, done, total)`` in bytes, safe from any thread; None if stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}
    start, lock = time.monotonic(), threading.Lock()

    def told(name: str, done: int, total: int) -> None:
        with lock:
            if not bar.live.is_started:
                if time.monotonic() - start < PATIENCE:
                    return
                bar.start()
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
        bar.update(tasks[name], completed=done)

    try:
        yield told
    finally:
        bar.stop()


@contextmanager
def counting_progress(name: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Yield ``told(done, total)``; None if stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
