"""``stayfinite watch RUN...``: watch runs live, on the terminal or in a browser."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from stayfinite.cli.ending import command
from stayfinite.core.schema_names import tagged
from stayfinite.errors import UsageError

if TYPE_CHECKING:
    from stayfinite.core.run_status import RunStatus
    from stayfinite.diagnosis.watching import Followed, WatchedRuns
    from stayfinite.report.live.page import LivePage, Shown


SHARE = 0.03
"""Share of a core that watching may use, once everything was read."""
LONGEST_PAUSE = 60.0
"""Longest pause between reads, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Watch runs while they train: health with its reason, curves, speed and decisions. Ctrl-C stops. Exit code 0: all
    healthy, 1: a run is not, 2: wrong use.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories, logs of other frameworks, or a directory of runs, also future ones. They may not exist yet. A
    file in a guarded run's directory shows that run."""

    web: bool = False
    """Serve the live report for a browser."""

    host: str = "127.0.0.1"
    """Address for --web. If others can reach it, the URL holds a secret token."""

    port: int = 8765
    """Port for --web; 0 for a free one."""

    token: bool = False
    """Use a token on this machine too, if others are logged in."""

    steps: int | None = None
    """Total steps of a run, for the remaining time, if neither run.json nor the log has it."""

    config: tuple[Path, ...] = ()
    """Configs or scripts of watched logs, to tell causes apart."""

    poll: float = 0.5
    """Seconds between reads."""

    once: bool = False
    """Show the current state, and exit."""

    stop: bool = False
    """Exit with code 1 as soon as a run is sick or critical."""

    metrics: Path | None = None
    """Write Prometheus metrics to this file, atomically, for the node exporter's textfile collector."""

    json: bool = False
    """Print JSON and nothing else: a line on every change, or one object with --once."""


@command(Watch, also=(OSError,))
def run(settings: Watch) -> int:
    """Run the command; 1 if a run is not healthy at the end, 0 if all are, 2 on wrong use."""
    if wrong := _wrong(settings):
        raise UsageError(wrong)
    from stayfinite.core.settings import Settings
    from stayfinite.diagnosis.reading import head_of
    from stayfinite.diagnosis.watching import WatchedRuns, run_around
    from stayfinite.readers.configs import read_config

    for path in settings.paths:
        if (around := run_around(path)) is not None:
            named = around if around.name else around.absolute()
            print(f"stayfinite watch: {path} belongs to {named}, which is already watched", file=sys.stderr)
        elif path.is_file():
            try:
                head_of(path)
            except UsageError as error:
                raise UsageError(f"{path}: {error.message}", fix=error.fix) from None
    known = sum((read_config(path) for path in settings.config), Settings())
    watched = WatchedRuns(settings.paths, total_steps=settings.steps, settings=known, drawn=settings.web)
    return _once(settings, watched) if settings.once else _live(settings, watched)


def _wrong(settings: Watch) -> str:
    if not settings.paths:
        return "name a run directory or a log: stayfinite watch runs/first"
    if not (math.isfinite(settings.poll) and settings.poll > 0):
        return f"--poll {settings.poll}: expected seconds above 0"
    if settings.steps is not None and settings.steps < 1:
        return f"--steps {settings.steps}: expected at least 1"
    if not 0 <= settings.port <= 65_535:
        return f"--port {settings.port}: expected 0 to 65535"
    if settings.web and settings.once:
        return "--web and --once: use `stayfinite report` for a static page"
    missing = [path for path in settings.paths if settings.once and not path.exists()]
    return f"no such file or directory: {missing[0]}" if missing else ""


def _once(settings: Watch, watched: WatchedRuns) -> int:
    watched.look(at_once=True)
    statuses = watched.statuses()
    _write_metrics(settings, statuses)
    from stayfinite.report.live.lines import PlainLines, strict_json

    if settings.json:
        worst = max((status.health.word for status in statuses), key=list(type(statuses[0].health.word)).index)
        runs = [status.to_json() for status in statuses]
        print(strict_json(tagged("watch", {"health": worst, "runs": runs}), indent=1))
    elif sys.stdout.isatty():
        from stayfinite.report.live.screen import screen
        from stayfinite.report.standard_output import StandardOutput

        console = StandardOutput()
        console.print(screen(statuses, console))
    else:
        PlainLines(print).show(statuses)
    nothing = [
        status for status in statuses if status.health.word == "unknown" and not (status.seen or status.happenings)
    ]
    for status in nothing:
        print(f"stayfinite watch: {status.path}: no steps or measurements found", file=sys.stderr)
    return 2 if nothing else _exit_code(statuses)


def _live(settings: Watch, watched: WatchedRuns) -> int:
    from stayfinite.report.live.lines import chosen_show

    statuses: list[RunStatus] = []
    # Always restore the terminal.
    with _interruptible(), contextlib.ExitStack() as stack:
        page, url = stack.enter_context(_served(settings)) if settings.web else (None, "")
        show = stack.enter_context(chosen_show(as_json=settings.json, url=url))
        first = True
        while True:
            begun = time.process_time()
            with contextlib.nullcontext() if page is None else page.hub.lock:
                changed = watched.look()
                statuses = watched.statuses()
                if page is not None and (changed or page.late or page.outdated(statuses)):
                    page.publish([_shown(run, status) for run, status in zip(watched.runs, statuses, strict=True)])
            show(statuses)
            _write_metrics(settings, statuses)
            ended = all(status.ended in ("closed", "stopped") for status in statuses)
            over = ended and page is None and not watched.expecting
            if over:
                # The last verdict covers the whole run, including what was not due to be read or judged.
                watched.look(at_once=True)
                show(statuses := watched.statuses())
                _write_metrics(settings, statuses)
            if over or (settings.stop and any(_alarming(status) for status in statuses)):
                break
            if not watched.behind:
                # Reading a thousand runs takes time; leave the machine to the trainings.
                spent = 0.0 if first or watched.turning else time.process_time() - begun
                time.sleep(max(settings.poll, min(LONGEST_PAUSE, spent / SHARE)))
                first = False
    return _exit_code(statuses)


def _write_metrics(settings: Watch, statuses: Sequence[RunStatus]) -> None:
    if settings.metrics is None:
        return
    from stayfinite.report.live.lines import metrics_text

    aside = settings.metrics.with_name(f".{settings.metrics.name}.{os.getpid()}")
    aside.write_text(metrics_text(statuses), encoding="utf-8")
    aside.replace(settings.metrics)


@contextlib.contextmanager
def _served(settings: Watch) -> Iterator[tuple[LivePage, str]]:
    """Context with the live page and its address."""
    from stayfinite.report.live.page import LivePage
    from stayfinite.report.live.server import Door, LiveServer

    page = LivePage()
    door = Door.of(settings.host, always_token=settings.token)
    try:
        server = LiveServer(settings.host, settings.port, door=door, hub=page.hub, page=page.page)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"cannot serve on {settings.host}:{settings.port}: {why}", fix="give another --port, or --host"
        ) from error
    server.start()
    try:
        yield page, server.url
    finally:
        server.stop()


def _shown(run: Followed, status: RunStatus) -> Shown:
    from stayfinite.diagnosis.live_run import LiveRun
    from stayfinite.readers.runs.reader import RunReader
    from stayfinite.report.live.page import NO_DIAGNOSIS, Shown

    diagnosis = NO_DIAGNOSIS if run.diagnosis is None else run.diagnosis.to_json()
    if isinstance(run, LiveRun) and isinstance(run.source, RunReader):
        return Shown(status=status, diagnosis=diagnosis, reader=run.source, news=run.news)
    return Shown(status=status, diagnosis=diagnosis, series=None if isinstance(run, LiveRun) else run.series)


def _alarming(status: RunStatus) -> bool:
    return status.health.word in ("sick", "critical")


def _exit_code(statuses: Sequence[RunStatus]) -> int:
    return int(any(status.health.word.alarms for status in statuses))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Context that Ctrl-C and SIGTERM end quietly."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
