"""Judging each run of a directory that holds the logs of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.diagnosis import Verdict
from stayfinite.diagnosis.reading import SeveralRuns, read_paths
from stayfinite.diagnosis.telling import Told


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """What one of several runs is judged to be."""

    paths: Sequence[Path]
    """Its logs, and the settings that are named like them."""
    verdict: Verdict
    trouble: Sequence[str] = ()
    cause: Finding | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "paths": [str(path) for path in self.paths],
            "verdict": self.verdict,
            "trouble": list(self.trouble),
            "cause": None if self.cause is None else self.cause.to_json(),
        }


def judge_apart(several: SeveralRuns, given: Sequence[Path], told: Told) -> list[RunVerdict]:
    """The verdict on each run, on each other log, and on what is known of the directory, such as broken checkpoints.

    Arguments:
        several: the directory.
        given: all paths of the command; the others than the directory tell of every run.
        told: what somebody knows besides.
    """
    sources = several.reading.sources
    logs = [Path(each.path) for each in sources if each.read_as == "log" and Path(each.path) not in given]
    configs = [Path(each.path) for each in sources if each.read_as == "config" and Path(each.path) not in given]
    others = [path for path in given if path != several.directory]
    in_runs = {log for run in several.runs for log in run}
    found = []
    for run in [*several.runs, *([log] for log in logs if log not in in_runs)]:
        paths = [*run, *(path for path in configs if path.stem in {log.stem for log in run})]
        judged = judge_reading(read_paths([*paths, *others]), told)
        found.append(RunVerdict(paths=paths, verdict=judged.verdict, trouble=judged.trouble, cause=judged.cause))
    found += [RunVerdict(paths=[Path(each.where)], verdict="sick", cause=each) for each in several.reading.known]
    return sorted(found, key=lambda each: [str(path) for path in each.paths])
