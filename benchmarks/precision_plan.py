"""Precision plans: how long one takes, and what it gains on a card.

    python -m benchmarks.precision_plan plan                  # 60M parameters on the CPU
    python -m benchmarks.precision_plan card --steps 300      # LLaMA 1.2B and byt5-small's shape; needs CUDA and torchao

The second trains each shape in fp32, tf32, bf16, in fp8 for all linear layers but the head, and by the plan, on the
package's own source, and writes ms a step, peak memory and the loss of every step.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.precision_models import SHAPES, Decoder, batches, text_of
from stayfinite import PrecisionPlan, plan_precision
from stayfinite.precision.applying import apply
from stayfinite.precision.candidates import Assignment

TEXT = Path(__file__).parent.parent / "src"
ROWS = {"LLaMA 1.2B": (8, 2048), "byt5-small": (8, 1024)}


def time_a_plan() -> None:
    """A whole plan for a model of 60M parameters, on the CPU."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    shape = SHAPES["60M"]
    model = Decoder(shape, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = batches(text_of(TEXT), 2, 128, words=shape.words, seed=0, device="cpu")
    wall, own = time.perf_counter(), time.process_time()
    plan = plan_precision(model, optimizer, batch, model, gpu="H100")
    wall, own = time.perf_counter() - wall, time.process_time() - own
    count = sum(p.numel() for p in model.parameters())
    print(f"{count / 1e6:.0f}M parameters: {wall:.0f} s, {own:.0f} s of both cores\n{plan}")


def assignments(model: nn.Module, plan: PrecisionPlan) -> dict[str, Assignment]:
    """What is compared."""
    linear = [name for name, module in model.named_modules() if type(module) is nn.Linear and name != "head"]
    return {
        "fp32": Assignment(base="fp32"),
        "tf32": Assignment(base="tf32"),
        "bf16": Assignment(base="bf16"),
        "fp8 everywhere": Assignment(base="bf16", formats=dict.fromkeys(linear, "fp8")),
        "plan": plan.assignment,
    }


def on_the_card(steps: int, output: Path) -> None:
    """Each shape in each precision, trained for so many steps."""
    if not torch.cuda.is_available():
        raise SystemExit("not measured: there is no card here")
    text, found = text_of(TEXT), {}
    for name, (rows, length) in ROWS.items():
        shape = SHAPES[name]
        torch.manual_seed(0)
        model = Decoder(shape, length).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        first = batches(text, rows, length, words=shape.words, seed=0, device="cuda")
        start = time.perf_counter()
        plan = plan_precision(model, optimizer, first, model, gpu="this")
        print(f"{name}: planned in {time.perf_counter() - start:.0f} s: {plan}")
        chosen = assignments(model, plan)
        del model, optimizer
        for kind, assignment in chosen.items():
            found[f"{name}, {kind}"] = _trained(shape, rows, length, text, assignment, steps)
            told = found[f"{name}, {kind}"]
            print(f"{name}, {kind}: {told['ms']:.1f} ms, {told['gib']:.1f} GiB, loss {told['losses'][-1]:.4f}")
    output.write_text(json.dumps(found, indent=1), encoding="utf-8")


def _trained(shape: Any, rows: int, length: int, text: Any, assignment: Assignment, steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    torch.set_float32_matmul_precision("highest" if assignment.base == "fp32" else "high")
    model = Decoder(shape, length).cuda()
    apply(model, assignment, region=True)
    compiled: Any = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    losses, times = [], []
    for step in range(steps):
        batch = batches(text, rows, length, words=shape.words, seed=step, device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(batch)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(float(loss.detach()))
    middle = sorted(times)[len(times) // 2]
    return {"ms": 1000 * middle, "gib": torch.cuda.max_memory_allocated() / 2**30, "losses": losses}


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("what", choices=("plan", "card"))
    asked.add_argument("--steps", type=int, default=300)
    asked.add_argument("--output", type=Path, default=Path("precision.json"))
    given = asked.parse_args()
    if given.what == "plan":
        time_a_plan()
    else:
        on_the_card(given.steps, given.output)
