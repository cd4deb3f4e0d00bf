"""Cost of the doctor per training step: watched and unwatched steps of the same training alternate in one process.

Processor time is measured, so that other programs do not count. The second table is a program that fails after 10,000
cheap steps, run alone and under the doctor, including the explanation.

python benchmarks/doctor_cost.py
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from stayfinite.doctor.session import Session

GOAL = 1.05
GOAL_OF_FAILING = 3.0
FAILING = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear({width}, {width}), torch.nn.ReLU(), torch.nn.Linear({width}, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range({steps}):
    x = torch.randn(8, {width})
    if step == {steps} - 1:
        x[3] = 0
    rows = x.pow(2).sum(1).sqrt()
    loss = ((net(x).squeeze(1) - 1) ** 2 / rows).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def main() -> int:
    """Print both tables; 0 if their goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of steps, one watched and one not")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--failing-steps", type=int, default=10_000)
    given = parser.parse_args()
    cheap = _failing(given.failing_steps)
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
    return 0 if ratio <= GOAL and cheap <= GOAL_OF_FAILING else 1


def _failing(steps: int) -> float:
    """Explain a program that fails at its last step; returns the doctor's time over the program's own."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "failing.py"
        script.write_text(FAILING.format(steps=steps, width=64))
        alone, _, small = _run([sys.executable, str(script)])
        doctor, said, large = _run([sys.executable, "-m", "stayfinite", "doctor", str(script)])
    states = (64 * 64 + 64 + 65) * 4 * 2 / 2**20
    print(f"{steps:,} cheap steps alone {alone:6.1f} s, explained {doctor:6.1f} s, {doctor / alone:.2f}x (goal "
          f"{GOAL_OF_FAILING:g}); memory {small:.0f} and {large:.0f} MiB, two states are {states:.1f} MiB")  # fmt: skip
    print(next((line for line in said.splitlines() if line.startswith("SF")), "not explained"))
    return doctor / alone


def _run(command: list[str]) -> tuple[float, str, float]:
    """Processor seconds of a process and its children, its output, and its peak memory in MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.stdout, after.ru_maxrss / 1024


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _weights(model: nn.Module) -> float:
    return sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20


if __name__ == "__main__":
    raise SystemExit(main())
