"""Cost of re-running one step in N, to catch a device that computes wrong results.

    python benchmarks/replay.py                  # CPU
    python benchmarks/replay.py --device cuda

A small language model is trained under a guard. `plain` is the median step, `re-run` the median step that is re-run
before its update, alternating in one run. `a re-run costs` is the difference in plain steps: forward, backward and the
checksums of all gradients, twice. `share` is the cost at one step in N; `whole run` (``--whole 3``) is processor time
of N steps with one re-run over that of N steps without, the minimum of several alternating rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.incident_cost import BATCH, LENGTH, SILENT, WORDS, Decoder
from stayfinite import Guard, Policy


class Run:
    """One training with timed steps."""

    def __init__(self, device: str, width: int, every: int) -> None:
        torch.manual_seed(0)
        self.device = device
        model = Decoder(width).to(device)
        self.parameters = sum(each.numel() for each in model.parameters())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        policy = Policy(replay_every=every, snapshots=False)
        self.guard = Guard(model, optimizer, policy=policy, forward=lambda each: model(**each), console=SILENT)
        self.taken = 0

    def step(self) -> float:
        """Seconds of one step."""
        batch = {
            "tokens": torch.randint(0, WORDS, (BATCH, LENGTH), device=self.device),
            "weight": torch.ones(BATCH, device=self.device),
        }
        self._wait()
        begun = time.perf_counter()
        self.guard.step(self.guard.forward(batch))
        self._wait()
        self.taken += 1
        return time.perf_counter() - begun

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def extra(device: str, width: int, every: int, rounds: int) -> tuple[int, float, float]:
    """Parameters, the median plain step, and the median re-run step."""
    run = Run(device, width, every)
    plain: list[float] = []
    again: list[float] = []
    for _ in range(rounds * every):
        seconds = run.step()
        if run.taken > 2 * every:
            (again if run.taken % every == 0 else plain).append(seconds)
    assert run.guard._replays._replayed == rounds + 3, "every step that was due was run again"
    return run.parameters, statistics.median(plain), statistics.median(again)


def whole(width: int, every: int, rounds: int) -> float:
    """Relative processor time of ``every`` steps with one re-run, against as many without."""
    runs = {again: Run("cpu", width, every if again else 0) for again in (False, True)}
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for again, run in runs.items():
            begun = time.process_time()
            for _ in range(every):
                run.step()
            times[again].append(time.process_time() - begun)
    # The first round includes the calibration.
    return min(times[True][1:]) / min(times[False][1:]) - 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--widths", type=int, nargs="+", default=[64])
    parser.add_argument("--every", type=int, default=200, help="the N that the share is given for")
    parser.add_argument("--rounds", type=int, default=12, help="steps that are run again, for the median")
    parser.add_argument("--whole", type=int, default=0, help="rounds of N steps with and without, in turn")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(
        "million parameters", "plain, ms", "re-run, ms", "a re-run costs", f"share at N = {given.every}", "whole run",
        title=f"one step in N run again, {given.device}",
    )  # fmt: skip
    for width in given.widths:
        parameters, plain, again = extra(given.device, width, 6, given.rounds)
        steps = again / plain - 1
        measured = whole(width, given.every, given.whole) if given.whole > 1 and given.device == "cpu" else None
        table.add_row(
            f"{parameters / 1e6:.2f}", f"{plain * 1e3:.2f}", f"{again * 1e3:.2f}", f"{steps:.2f} steps",
            f"{steps / given.every:.2%}", "" if measured is None else f"{measured:+.2%}",
        )  # fmt: skip
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
