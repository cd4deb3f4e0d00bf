"""``stayfinite diagnose PATH...``: from a log, a config or a run directory to the cause."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from stayfinite.cli.ending import exit_code
from stayfinite.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Diagnose:
    """Say what went wrong with a training, from whatever is lying around of it: a log, a config or script beside it,
    trainer_state.json, a TensorBoard file, a run directory. `-` reads a log from standard input.
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files and directories of one run."""

    all: bool = False
    """Show every finding, not only the likeliest ones."""

    json: bool = False
    """Print the diagnosis as JSON and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; 0 when nothing is wrong, 1 with findings, 2 when nothing could be read."""
    settings = tyro.cli(Diagnose, args=list(arguments), prog="stayfinite diagnose")
    return exit_code("diagnose", lambda: _run(settings))


def _run(settings: Diagnose) -> int:
    if not settings.paths:
        raise UsageError("name a file or a directory: stayfinite diagnose train.log config.yaml")
    from stayfinite.diagnosis.diagnose import diagnose, diagnose_text
    from stayfinite.report.progress import reading_progress

    if settings.paths == ("-",):
        found = diagnose_text(sys.stdin.buffer.read().decode("utf-8", "replace"))
    else:
        with reading_progress(quiet=settings.json) as progress:
            found = diagnose(*settings.paths, progress=progress)
    if settings.json:
        print(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
    else:
        from stayfinite.report.diagnosis import show_diagnosis
        from stayfinite.report.standard_output import StandardOutput

        show_diagnosis(found.to_json(), StandardOutput(), everything=settings.all)
    return int(found.verdict == "sick")
