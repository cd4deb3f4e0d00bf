"""Cost of being able to explain a bad step: almost nothing while healthy, a moment otherwise.

    python benchmarks/incident_cost.py                  # CPU
    python benchmarks/incident_cost.py --device cuda

First table: processor time of ``guard.forward`` with incidents off and on, minimum of many rounds. The forward pass is
a stand-in that costs nothing, so that only the guard is measured: holding the batch and recording the generators.

Second table: one refused step of a small language model. `copied` is the time training waits before a thread takes
over, `written` the time of that thread, `explained` the autopsy in the process, `steps` the same in plain steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from stayfinite import Guard, Policy

BATCH, LENGTH, WORDS = 8, 128, 4096
SILENT = Console(quiet=True)


class Decoder(nn.Module):
    """A language model of a given width: 4 layers, 4,096 words, tied embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, tokens: Tensor, weight: Tensor) -> Tensor:
        """The loss of predicting each next token of [B, T], weighted by row [B]."""
        hidden = self.body(self.embed(tokens[:, :-1]) * weight[:, None, None])
        return F.cross_entropy((hidden @ self.embed.weight.T).flatten(0, 1), tokens[:, 1:].flatten())


def remembering(device: str, incidents: int, rounds: int) -> float:
    """Microseconds that ``guard.forward`` adds, minimum of many rounds."""
    model = nn.Linear(4, 4).to(device)
    loss = model.weight.sum()
    batch = {name: torch.zeros(8, 128, dtype=torch.int64, device=device) for name in ("input_ids", "mask", "labels")}
    guard = Guard(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        policy=Policy(max_incidents=incidents),
        forward=lambda _: loss,
        console=SILENT,
    )
    calls, times = 100, []
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(calls):
            guard.forward(batch)
            guard._passes.forget()
        times.append((time.process_time() - begun) / calls)
    return min(times) * 1e6


def incident(device: str, width: int) -> dict[str, float]:
    """Seconds of each part of one incident."""
    torch.manual_seed(0)
    model = Decoder(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def batch(bad: bool = False) -> dict[str, Tensor]:
        weight = torch.ones(BATCH, device=device)
        weight[3] = torch.nan if bad else 1.0
        return {"tokens": torch.randint(0, WORDS, (BATCH, LENGTH), device=device), "weight": weight}

    with tempfile.TemporaryDirectory() as folder:
        policy = Policy(gate="host", prove_steps=2)
        guard = Guard(
            model, optimizer, policy=policy, run_dir=folder, forward=lambda each: model(**each), console=SILENT
        )
        steps = [_timed(guard, batch(), device) for _ in range(8)]
        _timed(guard, batch(bad=True), device)
        guard.close()
        size = sum(path.stat().st_size for path in Path(folder, "incidents/0001").iterdir())
        found = json.loads(Path(folder, "incidents/0001/autopsy.json").read_text(encoding="utf-8"))
        lines = Path(folder, "events.jsonl").read_text(encoding="utf-8").splitlines()
        (written,) = [each for line in lines if (each := json.loads(line))["event"] == "incident"]
    step = statistics.median(steps[3:])
    return {
        "million parameters": sum(p.numel() for p in model.parameters()) / 1e6,
        "megabytes": size / 2**20,
        "copied": written["waited"],
        "written": written["seconds"],
        "explained": found["seconds"],
        "steps": found["seconds"] / step,
    }


def _timed(guard: Guard, batch: dict[str, Tensor], device: str) -> float:
    begun = time.perf_counter()
    guard.step(guard.forward(batch))
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256])
    given = parser.parse_args()
    console = Console()
    healthy = Table("incidents", "guard.forward, µs", title=f"a healthy step, {given.device}")
    for most in (0, 3):
        healthy.add_row("off" if not most else "on", f"{remembering(given.device, most, given.rounds):.1f}")
    console.print(healthy)
    table: Table | None = None
    for width in given.widths:
        figures = incident(given.device, width)
        table = table or Table(*figures, title=f"one refused step, {given.device} (seconds)")
        table.add_row(*(f"{value:.3g}" for value in figures.values()))
    if table is not None:
        console.print(table)


if __name__ == "__main__":
    main()
