"""Reading everything that a path stands for, whatever it is; what cannot be read is said and does not stop the rest."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stayfinite.core.finding import Finding
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import MOST_METRICS, RunSeries
from stayfinite.core.settings import Settings
from stayfinite.diagnosis.apart import separate_runs
from stayfinite.diagnosis.autopsies import AUTOPSY, proved_causes
from stayfinite.diagnosis.diagnosis import Source
from stayfinite.diagnosis.gathering import gather, named_like_a_config, named_like_a_log
from stayfinite.diagnosis.own_events import own_events, read_own_events
from stayfinite.diagnosis.own_steps import Refusals, refusals_in
from stayfinite.diagnosis.retold import retold_lines
from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.readers.configs import looks_like_config, read_config
from stayfinite.readers.logs import LogReader, read_log
from stayfinite.readers.logs.notebook_outputs import read_outputs
from stayfinite.readers.runs.directory import EVENTS, RUN, STEPS

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes read of it and its size."""

_TEXT = bytes({7, 8, 9, 10, 12, 13, 27} | set(range(0x20, 0x7F)) | set(range(0x80, 0x100)))
_READABLE_BINARY = lazy_regex(r"tfevents|\.(?:bin|gz)$", re.IGNORECASE)

STANDARD_INPUT = Path("-")

CHECKPOINTS = frozenset({".safetensors", ".pt", ".pth", ".ckpt", ".distcp"})

UNSURE = 0.5
"""Findings on checkpoints that are no surer than this are `scan`'s to tell."""

MOST_NAMED = 8
"""Other runs in a directory that are named."""

EMPTY = "empty"
"""Said of a file without a word in it."""

HEAD = 64 * 1024
"""Bytes from which the kind of a file is guessed."""


@dataclass(slots=True)
class Reading:
    """What was read of the paths of one run."""

    runs: list[RunSeries] = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    sources: list[Source] = field(default_factory=list)
    known: list[Finding] = field(default_factory=list)
    """What was seen or proved and needs no judging: damaged checkpoints (`scan` looks at their numbers), autopsies."""
    refusals: dict[str, Refusals] = field(default_factory=dict)
    """By log, what a guard has refused."""


class SeveralRuns(UsageError):
    """A directory holds the logs of several runs, which must not be judged as one."""

    def __init__(self, directory: Path, runs: Sequence[Sequence[str]], reading: Reading) -> None:
        self.directory = directory
        self.reading = reading
        """All of it together, which proves what needs no judging."""
        self.runs = [[Path(log) for log in logs] for logs in runs]
        """The logs of each."""
        names = [" and ".join(path.name for path in logs) for logs in self.runs]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        super().__init__(
            f"{directory} holds {len(names)} runs: {', '.join(names[:MOST_NAMED])}{more}",
            fix=f"diagnose one by its path: {self.runs[0][0]}",
        )


def read_paths(paths: Sequence[Path], progress: Progress | None = None, *, of_one_run: bool = False) -> Reading:
    """Read files and directories of one run, and a log from standard input where a path is `-`.

    Arguments:
        paths: files and directories.
        progress: told how far reading has come.
        of_one_run: refuse a directory with the logs of several.

    Raises:
        UsageError: when nothing of it could be read.
    """
    reading = Reading()
    for path in paths:
        if path == STANDARD_INPUT:
            _read_standard_input(reading)
            continue
        if (path / AUTOPSY).is_file():
            _look_at_incident(path, reading)
            continue
        if path.is_dir() or path.suffix.lower() in CHECKPOINTS:
            _look_at_checkpoints(path, reading)
        files = _files(path, reading.sources)
        if path.is_dir():
            # The run may lie below what was given: `output_dir` of a Trainer, whose guard writes to `stayfinite` in it.
            for folder in sorted({path, *(file.parent for file in files if file.name == STEPS)}):
                reading.known += proved_causes(folder)
        events = own_events(files) if path.is_dir() else []
        for file in files:
            _take(file, reading, progress, events=file in events)
        if of_one_run and path.is_dir() and not any(file.name in (STEPS, EVENTS) for file in files):
            names = {str(file) for file in files}
            if several := separate_runs([run for run in reading.runs if run.source in names]):
                raise SeveralRuns(path, several, reading)
    _look_beside(reading)
    _listen_to_notebooks(reading)
    if not any(source.read_as for source in reading.sources):
        only = reading.sources[0] if len(reading.sources) == 1 else None
        if only is not None and only.said == EMPTY:
            raise UsageError(f"{only.path} is {EMPTY}", fix="name a log, a config or a script of the run")
        raise UsageError(
            "nothing could be read: " + "; ".join(f"{source.path}: {source.said}" for source in reading.sources),
            fix="give a log, a config, a script, trainer_state.json, a TensorBoard file, or a directory with them",
        )
    return reading


def read_guarded(directory: Path) -> Reading:
    """Read what the guard itself has written of a run, and nothing else that lies in its directory.

    The directory may be a project's, with logs and checkpoints of years in it: at the end of a training nobody waits
    for them to be read.
    """
    reading = Reading(known=proved_causes(directory))
    for path in (directory / name for name in (STEPS, EVENTS, RUN)):
        if path.is_file():
            _take(path, reading, events=path.name == EVENTS)
    return reading


def read_text(text: str, name: str = "stdin") -> Reading:
    """Read a log that is no file."""
    reading = Reading()
    _read_text(text, name, reading)
    return reading


def main_series(path: Path, progress: Progress | None = None) -> RunSeries:
    """The one series that tells most of the run under a path.

    Raises:
        UsageError: when there is no measurement in it.
    """
    runs = read_paths([path], progress).runs
    best = max(runs, key=lambda run: (len(run.column("loss")), run.points_seen), default=None)
    if best is None or not best.points_seen:
        raise UsageError(f"{path}: no measurements found", fix="give a training log or a run directory")
    return best


def is_binary(head: bytes) -> bool:
    """Whether the beginning of a file is no text in any usual encoding."""
    if not head or head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b")):  # UTF-16 and gzip
        return False
    strange = len(head.translate(None, _TEXT))
    return strange > max(8, len(head) // 20)


def described(runs: Sequence[RunSeries]) -> str:
    """`transformers log, 240 lines, 120 measurements`."""
    points = sum(run.points_seen for run in runs)
    lines = max((run.lines for run in runs), default=0)
    kind = next((run.kind for run in runs if run.kind), "")
    ranks = f", {len(runs)} ranks" if len(runs) > 1 else ""
    counted = f"{lines:,} line{'' if lines == 1 else 's'}, " if lines else ""
    others = 0 if points else sum(len(track.values) for run in runs for track in run.metrics.values())
    measured = f"{points:,} measurement{'' if points == 1 else 's'}"
    if any(run.metrics_left_out for run in runs):
        measured += f", only the first {MOST_METRICS:,} metric names"
    measured = f"{others:,} value{'' if others == 1 else 's'}, no loss" if others else measured
    return f"{kind or 'unknown'} log, {counted}{measured}{ranks}"


def _read_standard_input(reading: Reading) -> None:
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if text.strip():
        _read_text(text, "stdin", reading)
    else:
        reading.sources.append(Source(path="stdin", read_as="", said=EMPTY))


def _read_text(text: str, name: str, reading: Reading) -> None:
    reader = LogReader(name)
    reader.feed(text)
    reader.close()
    reading.runs += reader.series
    reading.sources.append(Source(path=name, read_as="log", said=described(reader.series)))


def _look_at_checkpoints(path: Path, reading: Reading) -> None:
    from stayfinite.readers.checkpoints.conclusion import conclude, found_at

    try:
        found = conclude(found_at([path]), quick=True)
    except OSError:
        return  # said when its files are read
    count = len(found.checkpoints)
    if count:
        named = f"{count} checkpoint{'s' if count > 1 else ''}, structure only; `stayfinite scan` checks the values"
        reading.sources.append(Source(path=str(path), read_as="checkpoint", said=named))
        # What merely could not be looked into is no damage.
        grave = [finding for finding in found.findings if finding.severity != "info"]
        reading.known += [finding for finding in grave if finding.confidence > UNSURE]


def _look_at_incident(path: Path, reading: Reading) -> None:
    """An incident of a guarded run is explained by its autopsy."""
    found = proved_causes(path, AUTOPSY)
    reading.known += found
    said = "an incident of a guarded run" if found else "an incident whose autopsy names no cause"
    reading.sources.append(Source(path=str(path), read_as="incident", said=said))


def _look_beside(reading: Reading) -> None:
    """Where a log lies beside a guard's steps and tells of those that it refused, the guard is heard too."""
    read = {source.path for source in reading.sources if source.read_as}
    for run in list(reading.runs):
        steps = Path(run.source).parent / STEPS
        if str(steps) in read or not steps.is_file():
            continue
        try:
            refused = refusals_in(steps)
        except OSError:
            continue
        if refused is not None and retold_lines(run, [refused]):
            read.add(str(steps))
            reading.refusals[str(steps)] = refused
            reading.known += proved_causes(steps.parent)
            reading.sources.append(Source(path=str(steps), read_as="log", said="the refused steps of a guarded run"))


def _listen_to_notebooks(reading: Reading) -> None:
    """Where no log was given, what notebooks have printed is the log; else it may be another run's."""
    if any(run.points_seen for run in reading.runs):
        return
    for place, source in enumerate(reading.sources):
        if (
            source.read_as == "config"
            and source.path.lower().endswith(".ipynb")
            and (runs := read_outputs(source.path))
        ):
            reading.runs += runs
            said = f"{source.said}; {described(runs)}"
            reading.sources[place] = Source(path=source.path, read_as="log", said=said)


def _files(path: Path, sources: list[Source]) -> list[Path]:
    try:
        if not path.is_dir():
            path.stat()
            return [] if any(source.path == str(path) and source.read_as for source in sources) else [path]
        found = gather(path)
    except OSError as error:
        sources.append(Source(path=str(path), read_as="", said=_why(error)))
        return []
    others = found.other_runs[:MOST_NAMED]
    said = "a separate run: diagnose it by its path"
    sources.extend(Source(path=str(other), read_as="", said=said) for other in others)
    if not found.logs and not found.configs and not any(source.path == str(path) for source in sources):
        sources.append(Source(path=str(path), read_as="", said="a directory without logs or configs"))
    return found.logs + found.configs


def _take(path: Path, reading: Reading, progress: Progress | None = None, *, events: bool) -> None:
    """Read one file; what cannot be read is said."""
    try:
        if events:
            _read_own_events(path, reading)
        else:
            _read(path, reading, progress)
    except (StayfiniteError, OSError) as error:
        reading.sources.append(Source(path=str(path), read_as="", said=_why(error)))


def head_of(path: Path) -> bytes:
    """How a file begins. Raises UsageError where it is neither text nor a binary log."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if is_binary(head) and not _READABLE_BINARY.search(path.name):
        raise UsageError("not text and not a supported file type", fix="give a log, a config or a directory")
    return head


def _read(path: Path, reading: Reading, progress: Progress | None) -> None:
    if not path.is_file():
        raise UsageError("a pipe or a device, not a file", fix="pipe it to standard input: ... | stayfinite diagnose -")
    head = head_of(path)
    if len(head) < HEAD and not head.strip():
        raise UsageError(EMPTY)
    if not named_like_a_log(path) and (named_like_a_config(path) or looks_like_config(path, head)):
        settings = read_config(path)
        reading.settings += settings
        reading.sources.append(
            Source(path=str(path), read_as="config", said=f"{len(settings)} setting{'' if len(settings) == 1 else 's'}")
        )
        return
    told = None if progress is None else lambda done, total: progress(path.name, done, total)
    runs = read_log(path, told)
    reading.runs += runs
    if refused := refusals_in(path):
        reading.refusals[str(path)] = refused
    reading.sources.append(Source(path=str(path), read_as="log", said=described(runs)))


def _read_own_events(path: Path, reading: Reading) -> None:
    findings, runs = read_own_events(path)
    known = {finding.cause for finding in reading.known}
    reading.known += [finding for finding in findings if finding.cause not in known]
    reading.runs += runs
    count = f", {len(findings)} finding{'s' if len(findings) > 1 else ''}" if findings else ""
    reading.sources.append(Source(path=str(path), read_as="log", said=f"events of a guarded run{count}"))


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(getattr(error, "message", error))
