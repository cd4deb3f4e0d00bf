"""Content of the report page for a path: its files are read and judged by the rules. Needs no torch."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stayfinite.diagnosis.diagnose import diagnose_guarded, judge_reading
from stayfinite.diagnosis.gathering import named_like_a_config, named_like_a_log
from stayfinite.diagnosis.reading import STANDARD_INPUT, Progress, read_paths
from stayfinite.diagnosis.telling import understand_told
from stayfinite.diagnosis.watching import newest_log
from stayfinite.errors import UsageError
from stayfinite.readers.runs.reader import RunReader, is_run_directory
from stayfinite.report.page.data import log_data, run_data


def shown_runs(
    paths: Sequence[Path], progress: Progress | None = None, tell: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Page data for each path: a run directory, or any other log.

    Configs and scripts among them belong to the run before them, or to the first one.

    Raises:
        UsageError: one of them has nothing to draw.
    """
    runs, beside = _with_configs(paths)
    return [
        shown_run(path, name, progress, configs=configs, tell=tell)
        for path, name, configs in zip(runs, _names(runs), beside, strict=True)
    ]


def shown_run(
    path: Path,
    name: str = "",
    progress: Progress | None = None,
    *,
    configs: Sequence[Path] = (),
    tell: Sequence[str] = (),
) -> dict[str, Any]:
    """Page data for one path. A directory that is not a run, but whose log is a guard's, means that run."""
    if path.is_dir() and not is_run_directory(path):
        newest = newest_log(path)
        path = path if newest is None or not is_run_directory(newest.parent) else newest.parent
    run = RunReader(path) if is_run_directory(path) else None
    if run is not None:
        run.refresh()
    reading = read_paths([path, *configs], progress)
    found = judge_reading(reading, understand_told(tell))
    best = max(found.runs, key=lambda run: (len(run.column("loss")), run.points_seen), default=None)
    measured = best is not None and best.points_seen > 0
    # Files of these names may also belong to another program.
    if run is not None and (run.steps.curves or run.events.counts or not measured):
        return run_data(run, found.to_json(), name=name)
    if best is None or not measured:
        raise UsageError(f"{path}: no measurements found", fix="give a training log or a run directory")
    return log_data(best, found.to_json(), name=name, settings=reading.settings)


def _with_configs(paths: Sequence[Path]) -> tuple[list[Path], list[list[Path]]]:
    """The runs, and for each the configs and scripts named with it."""
    runs: list[Path] = []
    beside: list[list[Path]] = []
    first: list[Path] = []
    for path in paths:
        if len(paths) > 1 and path.is_file() and _holds_settings(path):
            (beside[-1] if beside else first).append(path)
        else:
            runs.append(path)
            beside.append([])
    if not runs:
        return list(paths), [[] for _ in paths]
    beside[0] = first + beside[0]
    return runs, beside


def _holds_settings(path: Path) -> bool:
    """Whether a file is a config or a script, by its name or content."""
    if named_like_a_config(path) or named_like_a_log(path):
        return named_like_a_config(path)
    reading = read_paths([path])
    return bool(reading.settings) and not any(run.points_seen for run in reading.runs)


def guarded_run(directory: Path) -> dict[str, Any]:
    """Page data for a run of this process, from the guard's own files alone."""
    run = RunReader(directory)
    run.refresh()
    return run_data(run, diagnose_guarded(directory).to_json())


def _names(paths: Sequence[Path]) -> list[str]:
    """Last component of each path, or the full path if two are the same."""
    # Not `resolve`, which raises on circular links.
    last = ["stdin" if path == STANDARD_INPUT else Path(os.path.realpath(path)).name for path in paths]
    return [str(path) if last.count(name) > 1 else name for path, name in zip(paths, last, strict=True)]
