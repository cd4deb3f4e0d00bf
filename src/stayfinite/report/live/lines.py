"""Choose how runs are shown (a terminal view, plain lines, JSON), and write the lines; Prometheus metrics of them."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from stayfinite.core.run_status import Happening, HealthWord, RunStatus
from stayfinite.core.schema_names import tagged
from stayfinite.report.live.words import one_line, spell_line, spells

CLOCKS = frozenset({"quiet_seconds", "eta_seconds", "done"})
"""Fields that change with time alone."""

PAUSE = 10.0
"""Seconds between two progress lines."""

Show = Callable[[Sequence[RunStatus]], None]

UNMOVING = ("dumb", "unknown")
"""Terminals that cannot redraw; they get lines, like a pipe."""

REDRAWN = 0.5
"""Minimum seconds between redraws."""


class PlainLines:
    """Writes what is new about runs."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._told: dict[str, tuple[HealthWord, str, int | None, float]] = {}
        self._newest = Newest()

    def show(self, statuses: Sequence[RunStatus]) -> None:
        for status in statuses:
            name = status.name if len(statuses) > 1 else ""
            first = status.path not in self._told
            for spell in spells(self._newest.of(status)):
                self._write(spell_line(spell, name))
            word, state, step, when = self._told.get(status.path, (status.health.word, "", None, 0.0))
            turned = first or word != status.health.word or state != status.state
            moved = step != status.step and time.monotonic() - when >= PAUSE
            if turned or moved:
                self._write(one_line(status))
                when = time.monotonic()
                self._told[status.path] = (status.health.word, status.state, status.step, when)


class JsonLines:
    """Writes a run's status as a line of JSON when it changes; each event appears once."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._told: dict[str, dict[str, Any]] = {}
        self._newest = Newest()

    def show(self, statuses: Sequence[RunStatus]) -> None:
        for status in statuses:
            record = status.to_json()
            # Ignore changes of the clock alone.
            stable = {name: value for name, value in record.items() if name not in CLOCKS}
            if self._told.get(status.path) == stable:
                continue
            self._told[status.path] = stable
            record["happenings"] = [happening.to_json() for happening in self._newest.of(status)]
            self._write(strict_json(tagged("status", record)))


def strict_json(record: Mapping[str, Any], indent: int | None = None) -> str:
    """JSON without NaN or lone surrogates."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=indent)
    return text.encode("utf-8", "replace").decode()


class Newest:
    """Remembers the last event shown for each run."""

    def __init__(self) -> None:
        self._last: dict[str, Happening | None] = {}

    def of(self, status: RunStatus) -> Sequence[Happening]:
        """Events since the last call; all of them after the run restarts."""
        happenings = list(status.happenings)
        last = self._last.get(status.path)
        self._last[status.path] = happenings[-1] if happenings else None
        for place in range(len(happenings) - 1, -1, -1):
            if happenings[place] is last:
                return happenings[place + 1 :]
        return happenings


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
            _write(f"{url} (read-only; Ctrl+C to stop)")
        yield PlainLines(_write).show


@contextmanager
def _view(url: str) -> Iterator[Show]:
    from rich.live import Live

    from stayfinite.report.live.screen import screen
    from stayfinite.report.standard_output import StandardOutput

    console = StandardOutput()
    foot = f"{url} (read-only)  Ctrl+C to stop" if url else "Ctrl+C to stop"
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


_METRICS: tuple[tuple[str, str, str, Callable[[RunStatus], float | None]], ...] = (
    ("health", "gauge", "0 unknown, 1 healthy, 2 warning, 3 sick, 4 critical", lambda s: _rank(s.health.word)),
    ("running", "gauge", "1 while the run is active", lambda s: float(s.state == "running")),
    ("step", "gauge", "The newest step", lambda s: s.step),
    ("steps_total", "counter", "Steps read", lambda s: s.seen),
    ("refused_steps_total", "counter", "Steps refused by the guard", lambda s: s.refused),
    ("loss", "gauge", "The newest loss", lambda s: s.loss),
    ("grad_norm", "gauge", "The newest gradient norm, before clipping", lambda s: s.grad_norm),
    ("learning_rate", "gauge", "The newest learning rate", lambda s: s.lr),
    ("loss_scale", "gauge", "The newest fp16 loss scale", lambda s: s.loss_scale),
    ("steps_per_second", "gauge", "Pace", lambda s: s.rate),
    ("quiet_seconds", "gauge", "Time since the newest step", lambda s: s.quiet_seconds),
)
"""Name, type, help and value."""


def metrics_text(statuses: Sequence[RunStatus]) -> str:
    """All runs as metrics; unknown values are omitted."""
    lines = []
    for name, kind, what, value_of in _METRICS:
        lines += [f"# HELP stayfinite_{name} {what}", f"# TYPE stayfinite_{name} {kind}"]
        for status in statuses:
            value = value_of(status)
            if value is not None:
                lines.append(f'stayfinite_{name}{{run="{_escaped(status.name)}"}} {_number(float(value))}')
    return "\n".join(lines) + "\n"


def _rank(word: HealthWord) -> float:
    return float(list(HealthWord).index(word))


def _number(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text := repr(value), text)


def _escaped(label: str) -> str:
    plain = label.encode("utf-8", "replace").decode()
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
