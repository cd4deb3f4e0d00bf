"""Follow a run directory, live or afterwards."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stayfinite.errors import UsageError
from stayfinite.integrations.loggers.reading import RunReader
from stayfinite.integrations.loggers.sinks import Sink


class SinkFailed(UserWarning):
    """A logger failed; training and the other loggers continue."""


def mirror(run_dir: str | os.PathLike[str], *sinks: Sink) -> int:
    """Copy a finished run to loggers, and close them.

    Returns:
        The number of steps.

    Raises:
        UsageError: there is no run.
    """
    place = Path(run_dir)
    if not (place / "steps.jsonl").exists():
        raise UsageError(
            f"{place} is not a run directory: it has no steps.jsonl",
            fix="pass the guard's run_dir",
        )
    copier = _Copier(place, sinks)
    steps = copier.copy()
    copier.close()
    return steps


@contextmanager
def following(run_dir: str | os.PathLike[str], *sinks: Sink, every: float = 5.0) -> Iterator[None]:
    """Context in which a thread copies what is written to a run directory; at the end it copies the rest and closes.

    Arguments:
        run_dir: the guard's run directory; may not exist yet.
        every: seconds between reads.

    Earlier steps are not copied.
    """
    if not every > 0:
        raise UsageError(f"every={every!r}: expected seconds above 0", fix="following(run_dir, sink, every=5.0)")
    copier = _Copier(Path(run_dir), sinks)
    copier.skip()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            copier.copy()

    thread = threading.Thread(target=watch, name="stayfinite-loggers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        copier.copy()
        copier.close()


class _Copier:
    """Copies new content of a run directory to sinks; a failing sink is dropped."""

    def __init__(self, run_dir: Path, sinks: tuple[Sink, ...]) -> None:
        self._reader = RunReader(run_dir)
        self._sinks = list(sinks)

    def skip(self) -> None:
        """Skip existing content, but count it."""
        self._reader.news()

    def copy(self) -> int:
        """Copy new content; return the number of steps."""
        steps, events = self._reader.news()
        for sink in list(self._sinks):
            try:
                for step, values in steps:
                    sink.scalars(step, values)
                for step, title, words in events:
                    sink.event(step, title, words)
            except Exception as error:
                self._give_up(sink, error)
        return len(steps)

    def close(self) -> None:
        for sink in list(self._sinks):
            try:
                sink.close()
            except Exception as error:
                self._give_up(sink, error)

    def _give_up(self, sink: Sink, error: Exception) -> None:
        self._sinks.remove(sink)
        warnings.warn(
            (f"{type(sink).__name__} failed and gets no more records: {type(error).__name__}: {error}"),
            SinkFailed,
            stacklevel=3,
        )
