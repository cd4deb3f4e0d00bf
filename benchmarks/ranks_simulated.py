"""Thousands of ranks in one process: the guard's protocols under faults, and what they add to a step.

    python benchmarks/ranks_simulated.py                        # 10,000 schedules of 4,096 ranks, on all cores
    python benchmarks/ranks_simulated.py --schedules 500        # a quick look

Each schedule is a training of 16 steps on 512 machines of 8 ranks, with one to five faults drawn from its seed: NaN
losses, poisoned weights, failing memory and disks, ranks that are late, hang or die (before, during and after the
all-reduce), damaged checkpoints. Ranks decide with ``core/judge.py``, keep states with ``core/keeping.py``, write
checkpoints with ``core/sharing.py`` and name a hanging rank with ``core/stalls.py``; machines restart with
``core/supervising.py``. This is the code a guard runs; only network, disk and clock are simulated. Ranks in the same
state run once, since their code is pure.

The second table shows what the guard adds to a step. Bytes: the message of ``Ranks.combine``. Host: measured here, the
real code with a no-op all-reduce. Network: a model, not a measurement: a tree of hops with the latency and bandwidth
named above the table.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.simulated.campaign import add_up, outcomes
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.measure.gradients import GradientNorms
from stayfinite.measure.reading import RANK_COLUMNS, Reading, pack, unpack
from stayfinite.measure.roster import take_roster

HOP = 5e-6
"""Assumed seconds per hop."""

BANDWIDTH = 25e9
"""Assumed bytes per second."""

PARAMETERS = 290
"""Tensors of a model like LLaMA-7B."""

ROUNDS = 30


def host_seconds(ranks: int) -> tuple[float, int]:
    """Median host seconds of one step with this many ranks, and the message's bytes."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    sent: list[int] = []
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        model = nn.ParameterList([nn.Parameter(torch.zeros(4)) for _ in range(PARAMETERS)])
        roster = take_roster(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with mock.patch.object(dist, "new_group", return_value=None):
            group = Ranks(model, roster)
        norms = GradientNorms(tuple(range(PARAMETERS)), (), torch.ones(PARAMETERS), torch.tensor(1.0))
        own = Reading(1, torch.tensor(1.0), norms, 0.1, None, {}, 1, "")
        with mock.patch.object(dist, "all_reduce", side_effect=lambda message, **_: sent.append(message.nbytes)):
            times = []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                envelope, packed = pack(group.combine(own, roster))
                unpack(envelope, packed.tolist(), roster)
                times.append(time.perf_counter() - begun)
    finally:
        dist.destroy_process_group()
    return statistics.median(times), sent[0]


def network_seconds(ranks: int, nbytes: int) -> float:
    """An all-reduce over a tree: up and down, each hop with the whole message."""
    hops = 2 * max(1, math.ceil(math.log2(ranks)))
    return hops * HOP + 2 * nbytes / BANDWIDTH


def campaign(schedules: int, seed: int, ranks: int, jobs: int | None) -> bool:
    """Run the schedules and print the outcomes; whether every promise held."""
    begun = time.perf_counter()
    ends, counts, broken = add_up(outcomes(schedules, seed=seed, ranks=ranks, jobs=jobs))
    seconds = time.perf_counter() - begun
    steps = counts["steps"]
    print(f"{schedules:,} schedules of {ranks:,} ranks from seed {seed}, {seconds:.0f} s")
    print("ended: " + ", ".join(f"{count:,} {end}" for end, count in ends.most_common()))
    print(f"{steps:,} steps in {counts['attempts']:,} attempts")
    actions = {name.removeprefix("action "): count for name, count in counts.items() if name.startswith("action ")}
    print("decisions: " + ", ".join(f"{count:,} {name}" for name, count in sorted(actions.items())))
    print(f"{counts['checkpoints']:,} checkpoints; {counts['hangs named']:,} hangs named, "
          f"{counts['delays left alone']:,} delays left alone; {counts['waits in vain']:,} waits for a machine that "
          f"had stopped")  # fmt: skip
    print(
        f"host agreements beyond the all-reduce: {counts['agreements'] / steps:.2f} a step, for any number of ranks\n"
    )
    promises = (
        "two decisions at one step",
        "some ranks wait in a collective that others never come to",
        "it never ends",
        "a poisoned checkpoint",
        "a checkpoint of several steps, or not of all ranks",
        "a training that was stopped was started again",
        "a rank that hangs was not named",
        "a rank that works was named",
    )
    for promise in (*promises, *(other for other in broken if other not in promises)):
        seeds = broken.get(promise, [])
        print(
            f"{'SHORT' if seeds else 'PASS '} {len(seeds):,} times: {promise}" + (f", seeds {seeds[:5]}" * bool(seeds))
        )
    return not broken


def table() -> None:
    """Print the cost of a step by number of ranks."""
    print(f"\n{PARAMETERS} parameters; network: {1e6 * HOP:g} us a hop, {BANDWIDTH / 1e9:g} GB/s (assumed)")
    print(f"{'ranks':>7}{'message':>12}{'rows alone':>12}{'host':>12}{'network':>12}{'of 8 bytes':>12}")
    for ranks in (2, 8, 64, 512, 1024, 4096):
        host, nbytes = host_seconds(ranks)
        rows = RANK_COLUMNS * 8 * ranks
        print(f"{ranks:>7,}{nbytes / 1024:>8.1f} KiB{rows / 1024:>8.1f} KiB{1e6 * host:>9.0f} us"
              f"{1e6 * network_seconds(ranks, nbytes):>9.0f} us{1e6 * network_seconds(ranks, 8):>9.0f} us")  # fmt: skip


def main() -> int:
    """Run and print; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kept = campaign(arguments.schedules, arguments.seed, arguments.ranks, arguments.jobs)
    table()
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
