"""Cost of a preflight check, in seconds and in plain training steps. Prints a table by probe.

    python benchmarks/preflight_time.py                        # a T5 of 60 million parameters, 4 rows of 128 tokens
    python benchmarks/preflight_time.py --rows 8 --length 64 --threads 2 --json preflight.json

The model has the shape of t5-small with random weights; nothing is downloaded. A plain step is forward, backward and
AdamW, the median of `--steps` after one warm-up. CPU time is shown next to wall time, since a busy machine does not
change it. The promise is under 30 seconds on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

PROMISED = 30.0
"""Seconds."""


def t5_small() -> Any:
    """A model of t5-small's shape, with random weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8)
    config.decoder_start_token_id = 0
    return T5ForConditionalGeneration(config)


Times = tuple[float, float]
"""Wall and CPU seconds."""


def now() -> Times:
    """Both clocks."""
    return time.perf_counter(), time.process_time()


def since(start: Times) -> Times:
    """Elapsed time on both clocks."""
    passed, worked = now()
    return passed - start[0], worked - start[1]


def plain_step(model: Any, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor], steps: int) -> Times:
    """Median time of a training step."""
    times = []
    for _ in range(steps + 1):
        start = now()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(since(start))
    return statistics.median(each[0] for each in times[1:]), statistics.median(each[1] for each in times[1:])


def by_probe(
    model: Any, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]
) -> tuple[dict[str, Times], Any]:
    """Time of each probe, and the findings. The first probe that needs a pass pays for those that share it."""
    from stayfinite.inspection import preflight

    times: dict[str, Times] = {}
    kept = dict(preflight.PROBES)

    def timed(name: str) -> Any:
        def look(bench: Any, notes: Any) -> None:
            start = now()
            kept[name](bench, notes)
            times[name] = since(start)

        return look

    preflight.PROBES.update({name: timed(name) for name in kept})
    start = now()
    try:
        found = preflight.inspect_training(model, optimizer, batch)
    finally:
        preflight.PROBES.update(kept)
    total = since(start)
    spent = [sum(each[clock] for each in times.values()) for clock in (0, 1)]
    times["keeping and putting back"] = total[0] - spent[0], total[1] - spent[1]
    times["in all"] = total
    return times, found


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=4)
    options.add_argument("--length", type=int, default=128)
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    model = t5_small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shape = (given.rows, given.length)
    batch = {name: torch.randint(3, 32000, shape) for name in ("input_ids", "labels")}
    step = plain_step(model, optimizer, batch, given.steps)
    times, found = by_probe(model, optimizer, batch)
    size = sum(p.numel() for p in model.parameters())
    print(f"{size:,} parameters, {given.rows} rows of {given.length} tokens, {given.threads} threads of the CPU")
    print(f"a plain training step takes {step[0]:.2f} s ({step[1]:.2f} s of the CPU); verdict: {found.verdict}\n")
    print(f"{'probe':<26}{'seconds':>9}{'of the CPU':>12}{'in steps':>10}")
    for name, (passed, worked) in times.items():
        print(f"{name:<26}{passed:>9.2f}{worked:>12.2f}{worked / step[1]:>10.1f}")
    kept = "kept" if times["in all"][0] < PROMISED else "NOT KEPT"
    print(f"\npromised: under {PROMISED:.0f} s; {kept}")
    if given.json:
        record = {"parameters": size, "rows": given.rows, "length": given.length, "threads": given.threads}
        given.json.write_text(json.dumps({**record, "step": step, "seconds": times}, indent=1))


if __name__ == "__main__":
    main()
