"""Follow a run directory, live or afterwards."""

import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.integrations.loggers.sinks import REFUSED, Sink
from stayfinite.readers.runs.directory import EVENTS, STEPS, GrowingLines

Scalars = list[tuple[int, dict[str, float]]]
Words = list[tuple[int, str, str]]

CURVES = ("loss", "grad_norm", "lr", "loss_scale")
SILENT = ("start", "closed", "checkpoint", "incident")
"""Events without trouble."""


class RunReader:
    """Reads what is new in a run directory, and counts vetoes and bounded steps."""

    def __init__(self, run_dir: Path) -> None:
        self._steps = GrowingLines(run_dir / STEPS)
        self._events = GrowingLines(run_dir / EVENTS)
        self._vetoes = self._bounded = 0

    def news(self) -> tuple[Scalars, Words]:
        """Steps and events since the last call."""
        # Events first: each is written after its step, so that step is read now at the latest.
        events = [(int(line.get("step", 0)), str(line["event"]), _words(line)) for line in _new(self._events)]
        steps: Scalars = []
        for line in _new(self._steps):
            self._vetoes += line.get("decision") in REFUSED
            self._bounded += line.get("decision") == "bound"
            steps.append((int(line["step"]), self._values(line)))
        return steps, [each for each in events if each[1] not in SILENT]

    def _values(self, line: Mapping[str, Any]) -> dict[str, float]:
        values = {name: line[name] for name in CURVES if isinstance(line.get(name), int | float)}
        parts = line.get("parts")
        if isinstance(parts, dict):
            values |= {f"parts/{name}": part for name, part in parts.items() if isinstance(part, int | float)}
        return {f"stayfinite/{name}": float(value) for name, value in values.items()} | {
            "stayfinite/vetoes": float(self._vetoes),
            "stayfinite/bounded": float(self._bounded),
        }


def _new(lines: GrowingLines) -> Iterator[dict[str, Any]]:
    """The records in lines completed since the last call."""
    more = True
    while more:
        piece, found = lines.look()
        more = piece.more
        for line in found:
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and ("step" in record or "event" in record):
                    yield record


def _words(line: Mapping[str, Any]) -> str:
    said = line.get("verdict") or line.get("reason") or line.get("title") or ""
    if line["event"] == "rollback" and "to_step" in line:
        said = f"{said} Back to step {line['to_step']}."
    if line["event"] == "finding":
        said = f"{line.get('code')} {line.get('cause')}: {said}. Fix: {line.get('fix')}"
    return f"step {line.get('step')}: {line['event']}. {said}".strip()


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
    if not (place / STEPS).exists():
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
