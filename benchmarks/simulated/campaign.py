"""Many schedules, on all cores."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks.simulated.schedule import Outcome, play

CHUNK = 50


def outcomes(schedules: int, *, seed: int = 0, ranks: int = 4096, jobs: int | None = None) -> Iterator[Outcome]:
    """The outcome of each schedule, from consecutive seeds."""
    seeds = range(seed, seed + schedules)
    one = partial(play, ranks=ranks)
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or schedules < 2 * CHUNK:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, seeds, chunksize=CHUNK)


def add_up(found: Iterator[Outcome]) -> tuple[Counter[str], Counter[str], dict[str, list[int]]]:
    """How schedules ended, what happened in them, and the seeds in which a promise was not kept, by promise."""
    ends: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    broken: dict[str, list[int]] = {}
    for outcome in found:
        ends[outcome.end] += 1
        counts += outcome.counts
        if outcome.broken:
            broken.setdefault(outcome.broken, []).append(outcome.seed)
    return ends, counts, broken
