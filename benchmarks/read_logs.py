"""Speed of reading logs, by format, on one core.

    python benchmarks/read_logs.py                    # 1,000,000 lines of each format, about two minutes
    python benchmarks/read_logs.py --lines 100000     # a quick look

Each log is written to a temporary file and read by three readers in turn: a plain loop over its lines, the minimum for
any Python reader; ``ast.literal_eval`` per line, the usual way to read dictionaries (only for such formats); and
stayfinite. Processor time, the best of `--repeats`. Promise: 1,000,000 lines in under 5 s for dictionaries, Megatron
lines and plain lines.
"""

from __future__ import annotations

import argparse
import ast
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stayfinite.readers.logs import read_log

PROMISE = 5.0
MILLION = 1_000_000


@dataclass(frozen=True)
class Format:
    """A log format, with a generator of lines."""

    name: str
    line: Callable[[int, random.Random], str]
    promised: bool = False
    is_literal: bool = False


def transformers(step: int, noise: random.Random) -> str:
    """As printed by transformers 4 and 5."""
    loss, norm, lr = 2 + noise.random(), 3 * noise.random(), 5e-5 / (1 + step)
    return f"{{'loss': {loss:.4f}, 'grad_norm': {norm!r}, 'learning_rate': {lr!r}, 'epoch': {step / 1000:.2f}}}"


def megatron(step: int, noise: random.Random) -> str:
    """As printed by Megatron-LM."""
    return (
        f" iteration {step:8d}/ 1000000 | consumed samples: {1024 * step:12d} | elapsed time per iteration (ms): "
        f"{900 + noise.random():.1f} | learning rate: {1e-4 / (1 + step):.3E} | global batch size:  1024 | lm loss: "
        f"{2 + noise.random():.6E} | loss scale: 65536.0 | grad norm: {noise.random():.3f} | number of skipped "
        f"iterations:   0 | number of nan iterations:   0 |"
    )


def plain(step: int, noise: random.Random) -> str:
    """As printed by people's own scripts."""
    return f"step {step} | loss {2 + noise.random():.4f} | grad_norm {9 * noise.random():7.4f} | lr {1e-4:.3e}"


def ranks(step: int, noise: random.Random) -> str:
    """Eight ranks writing to one file."""
    return (
        f"[rank{step % 8}]: 2025-01-02 03:04:05,{step % 1000:03d} INFO step {step // 8} loss {2 + noise.random():.4f}"
    )


def openmmlab(step: int, noise: random.Random) -> str:
    """As printed by mmdet: eight numbers per line, most of them parts of the loss."""
    return (
        f"2021-01-02 03:04:05,{step % 1000:03d} - mmdet - INFO - Epoch [1][{step}/1000000]\tlr: 2.500e-03, eta: 1 day, "
        f"2:03:{step % 60:02d}, time: 0.5{step % 10}, loss_cls: {noise.random():.4f}, loss_bbox: {noise.random():.4f}, "
        f"loss: {noise.random():.4f}, grad_norm: {noise.random():.4f}"
    )


def json_lines(step: int, noise: random.Random) -> str:
    """As written by many loggers."""
    return f'{{"step": {step}, "loss": {2 + noise.random()!r}, "grad_norm": {noise.random()!r}, "lr": 0.0001}}'


def messages(step: int, noise: random.Random) -> str:
    """Lines without measurements."""
    return f"2025-01-02 03:04:05,{step % 1000:03d} - INFO - worker {noise.randrange(64)} has loaded shard {step}"


FORMATS = (
    Format("transformers", transformers, promised=True, is_literal=True),
    Format("Megatron", megatron, promised=True),
    Format("plain step and loss", plain, promised=True),
    Format("JSON lines", json_lines, is_literal=True),
    Format("eight ranks in one file", ranks),
    Format("mmdet, parts of the loss", openmmlab),
    Format("messages only", messages),
)


def looped(path: Path) -> int:
    """The minimum: iterate over the lines."""
    with path.open(encoding="utf-8") as file:
        return sum(1 for _ in file)


def evaluated(path: Path) -> int:
    """Evaluate a Python literal per line."""
    with path.open(encoding="utf-8") as file:
        return sum(len(ast.literal_eval(line)) > 0 for line in file)


def read(path: Path) -> int:
    """Read everything in the log."""
    return read_log(path)[0].lines


def seconds(reader: Callable[[Path], int], path: Path, repeats: int, lines: int) -> float:
    """Processor time for a million lines, the best of a few runs."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        found = reader(path)
        times.append(time.process_time() - begun)
        assert found == lines, f"{found} lines read, {lines} written"
    return min(times) * MILLION / lines


def written(path: Path, format_: Format, lines: int) -> None:
    """Write a log of one format."""
    noise = random.Random(0)

    def all_lines() -> Iterator[str]:
        for step in range(lines):
            yield f"{format_.line(step, noise)}\n"

    with path.open("w", encoding="utf-8") as file:
        file.writelines(all_lines())


def peak_mib() -> float:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Measure and report; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=MILLION)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    titles = f"{'plain loop':>12}{'literal_eval':>14}{'stayfinite':>12}{'lines/s':>12}"
    print(f"{'seconds for a million lines':<28}{titles}")
    worst = 0.0
    before = peak_mib()
    with tempfile.TemporaryDirectory(prefix="read_logs_") as folder:
        path = Path(folder) / "train.log"
        for format_ in FORMATS:
            written(path, format_, arguments.lines)
            ours = seconds(read, path, arguments.repeats, arguments.lines)
            loop = seconds(looped, path, 1, arguments.lines)
            literal = f"{seconds(evaluated, path, 1, arguments.lines):.2f}" if format_.is_literal else "-"
            print(f"{format_.name:<28}{loop:>12.2f}{literal:>14}{ours:>12.2f}{MILLION / ours:>12,.0f}", flush=True)
            if format_.promised:
                worst = max(worst, ours)
    kept = worst < PROMISE
    print(f"\nmemory: {peak_mib() - before:.0f} MiB more at the peak of all of them than before the first")
    print(f"{'PASS ' if kept else 'SHORT'} {worst:.2f} s for a million lines, promised under {PROMISE:.0f} s")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
