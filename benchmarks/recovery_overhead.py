"""Cost of snapshots and asynchronous checkpoints for a guarded training of 100M parameters.

    python benchmarks/recovery_overhead.py                  # CPU, a small batch
    python benchmarks/recovery_overhead.py --device cuda    # bf16 autocast, a large batch

Three kinds of turns alternate, so that other load on the machine affects all alike: steps of a guard without snapshots
and checkpoints; as many steps with one snapshot, until it is proved; as many with one checkpoint, until it is written
and verified. The time beyond as many plain steps is the full price of a snapshot or checkpoint: the copy, the waits,
and the processor time of a background thread.

The price of a snapshot is spread over the interval the guard chooses by default, that of a checkpoint over `--minutes`,
since checkpoints have no default interval. Medians over all rounds; for the snapshot the guard's own stopwatch, if that
shows more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stayfinite import Guard, Policy
from stayfinite.core.keeping import LEAST_STEPS

PROMISE = 1.02
COPIES = 2
WIDTH, LAYERS, HEADS, WORDS = 768, 12, 12, 20_000
GIB = 1 << 30


class Decoder(nn.Module):
    """A language model of 100M parameters: 12 layers of width 768, 20,000 words, tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.embed.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of predicting each next token of [B, T]."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1] - 1, device=tokens.device)
        hidden = self.body(self.embed(tokens[:, :-1]), mask=mask, is_causal=True)
        return F.cross_entropy((hidden @ self.embed.weight.T).flatten(0, 1), tokens[:, 1:].flatten())


class Silent:
    """A console that records its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, line: object) -> None:
        """Record a line."""
        self.lines.append(f"{line}")


class Bench:
    """One model and optimizer, and two guards that use them in turn."""

    def __init__(self, device: str, rows: int, length: int, steps: int, run_dir: Path) -> None:
        torch.manual_seed(0)
        self.device, self.steps, self.run_dir = torch.device(device), steps, run_dir
        self.model = Decoder().to(self.device)
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.tokens = torch.randint(WORDS, (rows, length + 1), device=self.device)
        self.console = Silent()
        # So small a rate that the model does not change; the arithmetic is the same.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-7, fused=True)
        self.plain = Guard(self.model, self.optimizer, policy=Policy(snapshots=False), console=self.console)
        proved_in_time = Policy(prove_steps=max(steps - 1, 1), keep_checkpoints=1)
        self.full = Guard(self.model, self.optimizer, policy=proved_in_time, run_dir=run_dir, console=self.console)

    def autocast(self) -> AbstractContextManager[object]:
        """bf16 on a GPU, nothing on a CPU."""
        return torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()

    def step(self, guard: Guard) -> None:
        """One training step."""
        with self.autocast():
            loss = self.model(self.tokens)
        guard.step(loss)

    def timed(self, work: Callable[[], int]) -> tuple[float, int]:
        """Seconds of some work until the device is idle, and its steps."""
        self._synchronize()
        begun = time.perf_counter()
        steps = work()
        self._synchronize()
        return time.perf_counter() - begun, steps

    def plain_steps(self) -> int:
        """The base: as many steps without snapshots and checkpoints."""
        return self._some(self.plain)

    def with_snapshot(self) -> int:
        """Steps with a snapshot due now and proved at the end."""
        cadence = self.full._recovery._cadence
        taken = cadence._taken
        cadence.at_once()
        steps = self._some(self.full)
        assert cadence._taken > taken, "no snapshot was taken"
        return steps

    def with_checkpoint(self) -> int:
        """Steps with a checkpoint saved now and written at the end."""
        done = self._checkpoints_written()
        self.full.checkpoint()
        steps = self._some(self.full)
        while self._checkpoints_written() == done:
            self.step(self.full)
            steps += 1
        return steps

    @property
    def by_stopwatch(self) -> float:
        """Cost of the last snapshot by the guard's own stopwatch, which sets its interval."""
        ring = self.full._recovery.ring
        assert ring is not None
        return ring.cost

    @property
    def state_bytes(self) -> int:
        """Bytes of weights and both moments."""
        return sum(3 * p.numel() * p.element_size() for p in self.model.parameters())

    @property
    def host_bytes(self) -> int:
        """Host memory of snapshots and checkpoints."""
        ring, saving = self.full._recovery.ring, self.full._saving
        assert ring is not None
        assert saving is not None
        return ring.nbytes + saving._memory.nbytes

    def close(self) -> None:
        """Wait for background work."""
        self.full.close()
        self.plain.close()

    def _some(self, guard: Guard) -> int:
        for _ in range(self.steps):
            self.step(guard)
        guard.flush()
        return self.steps

    def _checkpoints_written(self) -> int:
        events = self.run_dir / "events.jsonl"
        text = events.read_text(encoding="utf-8") if events.exists() else ""
        assert '"checkpoint-failed"' not in text, f"a checkpoint could not be written: see {events}"
        return text.count('"event": "checkpoint"')

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


@dataclass
class Measured:
    """Seconds, one per round."""

    step: list[float] = field(default_factory=list)
    snapshot: list[float] = field(default_factory=list)
    checkpoint: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    """Duration of a checkpoint in the background."""


def measure(bench: Bench, rounds: int) -> Measured:
    """Time the turns; the first round, which allocates memory, is dropped."""
    found = Measured()
    for number in range(rounds + 1):
        before, steps = bench.timed(bench.plain_steps)
        snapshot, _ = bench.timed(bench.with_snapshot)
        checkpoint, until_written = bench.timed(bench.with_checkpoint)
        after, _ = bench.timed(bench.plain_steps)
        step = (before + after) / (2 * steps)
        words = (
            f"step {1000 * step:.0f} ms, a snapshot costs {1000 * (snapshot - steps * step):.0f} ms, a checkpoint "
            f"{1000 * (checkpoint - until_written * step):.0f} ms, written within {checkpoint:.1f} s"
        )
        print(f"round {number} of {rounds}{'' if number else ' (warm-up)'}: {words}", flush=True)
        if number:
            found.step.append(step)
            found.snapshot.append(snapshot - steps * step)
            found.checkpoint.append(checkpoint - until_written * step)
            found.written.append(checkpoint)
    return found


def report(bench: Bench, found: Measured, minutes: float) -> bool:
    """Print the table; whether both promises hold."""
    step, snapshot, checkpoint = (
        statistics.median(values) for values in (found.step, found.snapshot, found.checkpoint)
    )
    # Less than the spread between turns on a busy machine, so use the guard's own stopwatch if it shows more.
    snapshot = max(snapshot, bench.by_stopwatch)
    interval = max(bench.by_stopwatch / Policy().snapshot_share, LEAST_STEPS * step)
    with_snapshots = 1 + snapshot / interval
    with_both = with_snapshots + max(checkpoint, 0) / (60 * minutes)
    copies = bench.host_bytes / bench.state_bytes
    print(f"\n{bench.parameters / 1e6:.0f}M parameters, {tuple(bench.tokens.shape)} tokens on {bench.device}, AdamW")
    print(f"{'guard, no snapshots, no checkpoints':<58}{1000 * step:>9.1f} ms/step   1.000x")
    print(f"{f'with snapshots, every {interval:.0f} s as the guard chooses':<58}"
          f"{1000 * step * with_snapshots:>9.1f} ms/step   {with_snapshots:.3f}x")  # fmt: skip
    print(f"{f'with snapshots, and a checkpoint every {minutes:g} minutes':<58}"
          f"{1000 * step * with_both:>9.1f} ms/step   {with_both:.3f}x")  # fmt: skip
    print(f"one snapshot costs {1000 * snapshot:.0f} ms, one checkpoint {1000 * checkpoint:.0f} ms, "
          f"written within {statistics.median(found.written):.1f} s")  # fmt: skip
    print(f"host memory: {bench.host_bytes / GIB:.2f} GiB, {copies:.2f} copies of the training state "
          f"({bench.state_bytes / GIB:.2f} GiB)\n")  # fmt: skip
    fast, small = with_both <= PROMISE, copies <= COPIES + 0.01
    print(f"{'PASS ' if fast else 'SHORT'} {with_both:.3f}x of the guard without them, promised at most {PROMISE:.2f}x")
    print(f"{'PASS ' if small else 'SHORT'} {copies:.2f} copies of the state on the host, promised at most {COPIES}")
    for line in bench.console.lines:
        print(f"?     the guard spoke: {line}")
    return fast and small


def main() -> int:
    """Measure and report; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="steps in a turn (default: 3 on a CPU, 30 on a GPU)")
    parser.add_argument("--minutes", type=float, default=10.0, help="between checkpoints (default: 10)")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    rows, length = (16, 1024) if on_gpu else (2, 64)
    with tempfile.TemporaryDirectory(prefix="recovery_overhead_") as folder:
        bench = Bench(arguments.device, rows, length, arguments.steps or (30 if on_gpu else 3), Path(folder))
        found = measure(bench, arguments.rounds)
        kept = report(bench, found, arguments.minutes)
        bench.close()
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
