"""What the doctor costs a training step: watched and unwatched steps of the same training in turn, in one process.

Seconds are those of the processor: other programs on a busy machine do not count.

python benchmarks/doctor_cost.py
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import torch
from torch import nn

from stayfinite.doctor.session import Session

GOAL = 1.05


def main() -> int:
    """Print the ratio of the median steps and the memory; 0 when the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of steps, one watched and one not")
    parser.add_argument("--rows", type=int, default=1024)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = torch.randn(given.rows, 256), torch.randint(0, 10, (given.rows,))

    def train() -> float:
        start = time.process_time()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        return time.process_time() - start

    train()
    before = _memory()
    session = Session()
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * given.pairs):
        watched = number % 4 in (1, 2)  # neither comes first more often
        if watched:
            session.begin()
        times[watched].append(train())
        if watched:
            session.end()
    alone, seen = statistics.median(times[False]), statistics.median(times[True])
    ratio = seen / alone
    mean = statistics.mean(times[True]) / statistics.mean(times[False])
    print(f"step alone    {1e3 * alone:8.1f} ms (median of {len(times[False])})")
    print(f"step watched  {1e3 * seen:8.1f} ms (median of {len(times[True])})")
    print(f"ratio         {ratio:8.3f}    of medians (goal {GOAL}); {mean:.3f} of means, the first looks included")
    print(f"memory        {_memory() - before:8.0f} MiB more at its peak; the weights are {_weights(model):.0f} MiB")
    return 0 if ratio <= GOAL else 1


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _weights(model: nn.Module) -> float:
    return sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20


if __name__ == "__main__":
    raise SystemExit(main())
