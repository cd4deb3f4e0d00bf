"""Precision plans: how long one takes, and what it gains on a card.

    python -m benchmarks.precision_plan plan                  # 60M parameters on the CPU
    python -m benchmarks.precision_plan card --steps 300      # LLaMA 1.2B, byt5-small's shape; needs CUDA, torchao
    python -m benchmarks.precision_plan table FILE...         # what the second wrote, as a table

The second trains each shape in fp32, tf32, bf16, in fp8 for all linear layers, and by the plan, on the package's own
source, with its blocks compiled, and writes ms a step, peak memory and the loss of every step.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.precision_models import SHAPES, Decoder, batches, text_of
from stayfinite import PrecisionPlan, plan_precision
from stayfinite.precision.applying import apply
from stayfinite.precision.candidates import Assignment
from stayfinite.precision.speed import compiled_blocks

TEXT = Path(__file__).parent.parent / "src"
ROWS = {"LLaMA 1.2B": (8, 2048), "byt5-small": (8, 1024)}
KINDS = ("plan", "bf16", "fp8 everywhere", "tf32", "fp32")
PLANNED_ROWS = 4
"""Batch rows for making the plan."""
RATE = 3e-4
WARM_UP = 50
"""Steps over which the rate rises: without it two runs of one precision differ by more than two precisions do."""
LAST = 20
"""The final loss is the mean over this many last steps."""


def time_a_plan() -> None:
    """Time a plan for a model of 60M parameters on the CPU."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    shape = SHAPES["60M"]
    model = Decoder(shape, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    batch = batches(text_of(TEXT), 2, 128, words=shape.words, seed=0, device="cpu")
    wall, own = time.perf_counter(), time.process_time()
    plan = plan_precision(model, optimizer, batch, model, gpu="H100")
    wall, own = time.perf_counter() - wall, time.process_time() - own
    count = sum(p.numel() for p in model.parameters())
    print(f"{count / 1e6:.0f}M parameters: {wall:.0f} s, {own:.0f} s of both cores\n{plan}")


def assignments(model: nn.Module, plan: PrecisionPlan) -> dict[str, Assignment]:
    """The assignments to compare."""
    linear = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    return {
        "fp32": Assignment(base="fp32"),
        "tf32": Assignment(base="tf32"),
        "bf16": Assignment(base="bf16"),
        "fp8 everywhere": Assignment(base="bf16", formats=dict.fromkeys(linear, "fp8")),
        "plan": plan.assignment,
    }


def on_the_card(given: argparse.Namespace) -> None:
    """Train each shape in each precision, and write the results after each."""
    if not torch.cuda.is_available():
        raise SystemExit("not measured: there is no card here")
    text = text_of(TEXT)
    for name in given.shapes:
        shape, (rows, length) = SHAPES[name], ROWS[name]
        rows = given.rows or rows
        found: dict[str, Any] = {"shape": name, "batch": [rows, length], "card": torch.cuda.get_device_name()}
        output = given.output / f"precision_{name.replace(' ', '_')}_{'_'.join(given.kinds).replace(' ', '_')}.json"
        chosen = {kind: Assignment(base=kind) for kind in given.kinds}
        if {"plan", "fp8 everywhere"} & set(given.kinds):
            if given.plan is None:
                found |= _planned(name, text)
            plan = found.pop("made", None) or PrecisionPlan.load(given.plan)
            plan.save(given.output / f"plan_{name.replace(' ', '_')}.json")
            with torch.device("meta"):
                chosen = assignments(Decoder(shape, length), plan)
        for kind in given.kinds:
            for told in _trained(shape, rows, length, text, chosen[kind], given.steps):
                found[kind] = told
                output.write_text(json.dumps(found, indent=1), encoding="utf-8")
                final, taken = statistics.fmean(told["losses"][-LAST:]), len(told["losses"])
                print(
                    f"{name}, {kind}, {taken}: {told['ms']:.1f} ms, {told['gib']:.1f} GiB, loss {final:.4f}", flush=True
                )


def _planned(name: str, text: Any) -> dict[str, Any]:
    shape, (_, length) = SHAPES[name], ROWS[name]
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Decoder(shape, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    first = batches(text, PLANNED_ROWS, length, words=shape.words, seed=0, device="cuda")
    start = time.perf_counter()
    plan = plan_precision(model, optimizer, first, model, gpu="this", compiled=True)
    seconds = time.perf_counter() - start
    print(f"{name}: planned in {seconds:.0f} s: {plan}", flush=True)
    for option in plan.options:
        print(f"  {option.name}: {option.ms} ms, fits {option.fits}, cosine {option.cosine}, loss {option.loss}")
    return {"made": plan, "sentence": plan.sentence(), "planned_s": seconds, "planned_rows": PLANNED_ROWS}


def _trained(
    shape: Any, rows: int, length: int, text: Any, assignment: Assignment, steps: int
) -> Iterator[dict[str, Any]]:
    """Yield the measurements so far, every hundred steps and at the end."""
    torch.manual_seed(0)
    gc.collect()  # the planning has left a model in cycles
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.set_float32_matmul_precision("highest" if assignment.base == "fp32" else "high")
    with torch.device("cuda"):
        model: Any = Decoder(shape, length)
    apply(model, assignment, region=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    losses, times = [], []
    with compiled_blocks(model):
        for step in range(steps):
            batch = batches(text, rows, length, words=shape.words, seed=step, device="cuda")
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP)
            torch.cuda.synchronize()
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            loss = model(batch)
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            losses.append(float(loss.detach()))
            if len(losses) % 100 == 0 or len(losses) == steps:
                yield {
                    "ms": 1000 * statistics.median(times),
                    "gib": torch.cuda.max_memory_allocated() / 2**30,
                    "losses": losses,
                    "first_step_s": times[0],
                }


def table(files: Sequence[Path]) -> str:
    """The runs of some files as a table, grouped by shape."""
    shapes: dict[str, dict[str, Any]] = {}
    for file in files:
        record = json.loads(file.read_text(encoding="utf-8"))
        shapes.setdefault(record["shape"], {}).update(record)
    lines = []
    for name, record in shapes.items():
        rows, length = record["batch"]
        lines += [f"## {name}, {rows} x {length} tokens", ""]
        if "sentence" in record:
            lines += [
                f"Planned in {record['planned_s']:.0f} s on {record['planned_rows']} rows: {record['sentence']}.",
                "",
            ]
        lines += [f"| | ms a step | against bf16 | peak GiB | steps | loss, mean of the last {LAST} | against bf16 |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|"]
        base = record["bf16"]
        for kind in reversed(KINDS):
            told = record.get(kind)
            if told is None:
                continue
            steps = len(told["losses"])
            last, same = (statistics.fmean(each["losses"][:steps][-LAST:]) for each in (told, base))
            lines.append(
                f"| {kind} | {told['ms']:.1f} | {base['ms'] / told['ms']:.2f}x | {told['gib']:.1f} | {steps} "
                f"| {last:.4f} | {100 * (last / same - 1):+.2f} % |"
            )
        lines += ["", "Loss at steps " + ", ".join(str(step) for step in _marks(base)) + ":", ""]
        for kind in reversed(KINDS):
            if kind in record:
                curve = record[kind]["losses"]
                shown = ", ".join(f"{curve[step - 1]:.3f}" for step in _marks(base) if step <= len(curve))
                lines.append(f"- {kind}: {shown}")
        lines.append("")
    return "\n".join(lines)


def _marks(told: dict[str, Any]) -> list[int]:
    steps = len(told["losses"])
    return [step for step in (1, 5, 10, 20, 50, 100, 150, 200, 250, 300, 500) if step <= steps]


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", nargs="?", default="plan", choices=("plan", "card", "table"))
    asked.add_argument("files", nargs="*", type=Path)
    asked.add_argument("--shapes", nargs="+", choices=list(ROWS), default=list(ROWS))
    asked.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    asked.add_argument("--plan", type=Path, help="a saved plan for the shape (default: make one)")
    asked.add_argument("--steps", type=int, default=300)
    asked.add_argument("--rows", type=int, help="rows of a batch (default: 8)")
    asked.add_argument("--output", type=Path, default=Path(), help="the folder to write to")
    given = asked.parse_args()
    if given.what == "plan":
        time_a_plan()
    elif given.what == "table":
        print(table(given.files))
    else:
        on_the_card(given)
