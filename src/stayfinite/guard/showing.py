"""What the page shows of a path: its files are read, the rules judge them, and both go to the page. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stayfinite.diagnosis.diagnose import diagnose
from stayfinite.diagnosis.reading import Progress
from stayfinite.errors import UsageError
from stayfinite.readers.runs.reader import RunReader, is_run_directory
from stayfinite.report.page.data import log_data, run_data


def shown_runs(paths: Sequence[Path], progress: Progress | None = None) -> list[dict[str, Any]]:
    """What the page shows of each path: a run directory, or a log that is somebody else's.

    Raises:
        UsageError: there is nothing to draw in one of them.
    """
    names = _names(paths)
    return [shown_run(path, name, progress) for path, name in zip(paths, names, strict=True)]


def shown_run(path: Path, name: str = "", progress: Progress | None = None) -> dict[str, Any]:
    """The same for one path."""
    if is_run_directory(path):
        run = RunReader(path)
        run.refresh()
        return run_data(run, diagnose(path, progress=progress).to_json(), name=name)
    found = diagnose(path, progress=progress)
    best = max(found.runs, key=lambda run: (len(run.column("loss")), run.points_seen), default=None)
    if best is None or not best.points_seen:
        raise UsageError(f"{path}: no measurement was found in it", fix="give a training log or a run directory")
    return log_data(best, found.to_json(), name=name)


def _names(paths: Sequence[Path]) -> list[str]:
    """Each path by its last word, and by more of them where two are called alike."""
    last = [path.resolve().name for path in paths]
    return [str(path) if last.count(name) > 1 else name for path, name in zip(paths, last, strict=True)]
