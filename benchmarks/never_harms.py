"""Healthy trainings with and without the guard, and harmful ones under every rule: does it help, and never harm?

    python benchmarks/never_harms.py                      # all trainings, 5 seeds, about an hour on two cores
    python benchmarks/never_harms.py --seeds 2 --only curriculum 'rare text'
    python benchmarks/never_harms.py --kept runs.jsonl --output benchmarks/results/never_harms.md

``--kept`` records every finished run; a stopped campaign resumes from there.

Every training is a small program in ``benchmarks/harm``, run in its own process, once per seed and arm. Figures are
final metrics on fresh data, lower is better. ``change`` is the mean over seeds of guard minus none in
pairs, in units of the spread between seeds without a guard: a healthy training must stay below 1. ``same bits`` counts
the seeds with identical metrics.

The arms: no guard; ``clip_grad_norm_(1.0)``; OLMo-core's rule (skip a step beyond 6 standard deviations of the last
128); ``Policy.refuse_spikes()``, which was the default before; the default policy in a plain loop; the default policy
with ``forward`` known.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harm.tables import harmful_table, healthy_table, totals

ARMS = ("none", "clip", "olmo", "refuse", "guard", "forward")
HEALTHY_ARMS = ("none", "guard", "forward")


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    training: str
    harmful: bool
    seed: int
    arm: str


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a run."""

    job: Job
    metrics: dict[str, float]
    counts: dict[str, int]
    seconds: float


def run(job: Job) -> Result:
    """Run one training with one arm."""
    import torch

    from benchmarks.harm.arms import make_arm
    from benchmarks.harm.catalogue import HARMFUL, HEALTHY
    from benchmarks.harm.trainings import Source

    torch.set_num_threads(1)
    body = (HEALTHY | HARMFUL)[job.training]
    arm = make_arm(job.arm)
    begun = time.process_time()
    torch.manual_seed(job.seed)
    metrics = body(arm, Source(job.seed))
    arm.close()
    return Result(job, metrics, arm.counts, time.process_time() - begun)


def jobs_of(arguments: argparse.Namespace) -> list[Job]:
    """All runs, grouped by training."""
    from benchmarks.harm.catalogue import HARMFUL, HEALTHY

    wanted = [
        (name, harmful, arms)
        for trainings, harmful, arms in ((HEALTHY, False, HEALTHY_ARMS), (HARMFUL, True, ARMS))
        for name in trainings
        if not arguments.only or name in arguments.only
    ]
    seeds = range(arguments.seeds)
    return [Job(name, harmful, seed, arm) for name, harmful, arms in wanted for seed in seeds for arm in arms]


def results_of(jobs: Sequence[Job], processes: int) -> Iterable[Result]:
    """Outcomes as they finish."""
    if not jobs:
        return
    with get_context("spawn").Pool(processes, maxtasksperchild=40) as pool:
        yield from pool.imap_unordered(run, jobs)


def kept_in(path: Path | None) -> list[Result]:
    """Runs recorded in a file."""
    if path is None or not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Result(Job(**row["job"]), row["metrics"], Counter(row["counts"]), row["seconds"]) for row in rows]


def main(words: Sequence[str] | None = None) -> None:
    """Run the campaign and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", default=(), help="names of trainings")
    parser.add_argument("--output", type=Path, help="also write the tables there, as Markdown")
    parser.add_argument("--kept", type=Path, help="keep every run in this file, and do not repeat those it holds")
    arguments = parser.parse_args(words)
    jobs, results = jobs_of(arguments), kept_in(arguments.kept)
    results = [each for each in results if each.job in jobs]
    done = {each.job for each in results}
    begun = time.monotonic()
    for result in results_of([job for job in jobs if job not in done], arguments.jobs):
        results.append(result)
        if arguments.kept:
            with arguments.kept.open("a", encoding="utf-8") as lines:
                print(json.dumps(asdict(replace(result, counts={**result.counts}))), file=lines)
        if result.job.arm == HEALTHY_ARMS[-1]:
            spent = time.monotonic() - begun
            figures = ", ".join(f"{name} {value:.4g}" for name, value in result.metrics.items())
            print(f"{len(results):4d} of {len(jobs)}  {spent:5.0f} s  {result.job.training}: {figures}", flush=True)
    results.sort(key=lambda each: jobs.index(each.job))
    tables = "\n".join((*healthy_table(results), "", *totals(results), "", *harmful_table(results)))
    print(f"\n{tables}")
    if arguments.output:
        arguments.output.write_text(f"{tables}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
