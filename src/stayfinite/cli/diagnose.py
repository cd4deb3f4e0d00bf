"""``stayfinite diagnose PATH...``: find the cause from a log, a config or a run directory."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from stayfinite.cli.ending import command, tell
from stayfinite.errors import UsageError

if TYPE_CHECKING:
    from stayfinite.diagnosis.diagnosis import Diagnosis
    from stayfinite.diagnosis.reading import SeveralRuns
    from stayfinite.diagnosis.telling import Told


@dataclass(frozen=True, kw_only=True)
class Diagnose:
    """Find out what went wrong in a training, from a log, config, script, trainer_state.json, TensorBoard file or run
    directory. `-` reads a log from standard input.
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files and directories of one run."""

    all: bool = False
    """Show every finding, not only the likeliest."""

    tell: tuple[str, ...] = ()
    """Facts not in any file, as name=value: precision=fp16 gpu=V100, what you see: symptom=nan, or an experiment's
    outcome: bf16=fine."""

    ask: bool = False
    """Ask for the missing fact that matters most, and continue with the answer."""

    json: bool = False
    """Print the diagnosis as JSON and nothing else."""


@command(Diagnose)
def run(settings: Diagnose) -> int:
    """Run the command; 0 if nothing is wrong, 1 with findings, 2 if nothing could be read."""
    if not settings.paths:
        raise UsageError("name a file or a directory: stayfinite diagnose train.log config.yaml")
    from stayfinite.diagnosis.diagnose import judge_reading
    from stayfinite.diagnosis.reading import SeveralRuns, read_paths
    from stayfinite.diagnosis.telling import understand_told
    from stayfinite.report.diagnosis import show_diagnosis
    from stayfinite.report.progress import reading_progress

    if settings.ask and ("-" in settings.paths or not sys.stdin.isatty()):
        raise UsageError("--ask needs a terminal", fix="answer with flags instead: --tell precision=fp16 gpu=V100")
    told = understand_told(settings.tell)
    try:
        with reading_progress(quiet=settings.json) as progress:
            reading = read_paths([Path(path) for path in settings.paths], progress, of_one_run=True)
    except SeveralRuns as several:
        if settings.json or settings.ask:
            raise
        return _tell_apart(several, settings, told)
    if settings.ask:
        from stayfinite.cli.interview import interview

        told = understand_told(interview(reading, settings.tell))
    found = judge_reading(reading, told)
    notes = [] if settings.json else _notes(found)
    show = partial(show_diagnosis, everything=settings.all, notes=notes)
    tell("diagnosis", found.to_json(), show, as_json=settings.json, ensure_ascii=False)
    return int(found.verdict in ("sick", "warning"))


def _tell_apart(several: "SeveralRuns", settings: Diagnose, told: "Told") -> int:
    """A line for each run of a directory."""
    from stayfinite.diagnosis.judged_apart import judge_apart
    from stayfinite.report.diagnosis import show_apart
    from stayfinite.report.standard_output import StandardOutput

    verdicts = judge_apart(several, [Path(path) for path in settings.paths], told)
    sources = [source.to_json() for source in several.reading.sources]
    show_apart(several.directory, [each.to_json() for each in verdicts], sources, StandardOutput())
    return int(any(each.verdict in ("sick", "warning") for each in verdicts))


def _notes(found: "Diagnosis") -> list[str]:
    """That a run was stopped by hand, and that a healthy one overfits."""
    from stayfinite.report.page.data import overfits_in_words
    from stayfinite.rules.crashes import stopped_by_hand

    stopped = ["Stopped by hand (Ctrl+C)."] if any(map(stopped_by_hand, found.runs)) else []
    runs = found.runs if found.verdict == "healthy" else ()
    return stopped + [note for run in runs if run.points_seen and (note := overfits_in_words(run))]
