"""Accuracy of `stayfinite check --memory` against CUDA's report.

    python benchmarks/memory.py                                         # measure on this machine's GPU, then compare
    python benchmarks/memory.py --write benchmarks/results/memory_NAME.json
    python benchmarks/memory.py --read benchmarks/results/memory_h200.json      # compare only; needs no GPU

Each case builds a transformers model from its config with random weights, runs two training steps (the first creates
the optimizer states) and reads `torch.cuda.max_memory_allocated` over the second: forward, backward, optimizer. The
estimate uses only the model's name.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stayfinite.inspection.memory.estimating import MIB, Estimate, estimate
from stayfinite.inspection.memory.finding_the_model import KNOWN, find_shape, known_as
from stayfinite.inspection.memory.inspecting import installed_transformers
from stayfinite.inspection.memory.plan import PRECISIONS, BiasKernel, Plan

PROMISE = 0.15

SHAPES = (
    "t5-small", "bert-base", "smollm2-135m", "byt5-small", "llama-3.2-1b", "t5-base", "mt5-small", "gpt2", "vit-base",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training to measure and estimate."""

    shape: str
    precision: str
    checkpointing: bool
    batch: int
    seq: int
    target: int | None = None
    optimizer: str = "adamw"
    attention: str = "sdpa"
    padded: bool = False
    lora: int | None = None


def cases(shapes: Iterable[str]) -> Iterator[Case]:
    """The grid: precisions, checkpointing, sizes, optimizers; and a few odd ones."""
    for shape in shapes:
        longest = find_shape(shape).positions or 1 << 20
        for precision in ("fp32", "bf16", "pure-bf16"):
            for again in (False, True):
                first = Case(shape=shape, precision=precision, checkpointing=again, batch=8, seq=512)
                for batch, seq in ((2, 512), (8, 512), (2, 1024)):
                    if seq > longest:
                        continue
                    for optimizer in ("adamw", "adamw-fused"):
                        yield _with(first, batch=batch, seq=seq, optimizer=optimizer)
                if shape != "vit-base":
                    yield _with(first, padded=True)
                    yield _with(first, attention="eager")
                if find_shape(shape).encoder_decoder:
                    yield _with(first, batch=16, target=128)


def _with(case: Case, **changes: Any) -> Case:
    return Case(**{**asdict(case), **changes})


def estimated(case: Case, bias_kernel: BiasKernel) -> Estimate:
    """The estimate for a case, from the model's name and the kernel of T5's bias."""
    plan = Plan(
        batch=case.batch,
        seq=case.seq,
        target_seq=case.target or case.seq,
        precision=PRECISIONS[case.precision],
        checkpointing=case.checkpointing,
        attention="eager" if case.attention == "eager" else "sdpa",
        bias_kernel=bias_kernel,
        padded=case.padded,
        optimizer=case.optimizer,
        lora=case.lora or 0,
    )
    return estimate(find_shape(case.shape), plan)


def build(shape: str, precision: str, attention: str) -> Any:
    """The model, with random weights, on the GPU."""
    import torch
    import transformers

    config = dict(KNOWN[known_as(shape) or shape])
    architecture = config.pop("architectures")[0]
    filled = transformers.AutoConfig.for_model(config.pop("model_type"), **config, attn_implementation=attention)
    if filled.is_encoder_decoder:
        filled.decoder_start_token_id = filled.pad_token_id = 0
    with torch.device("cuda"):
        model = getattr(transformers, architecture)(filled)
    return model.to(torch.bfloat16 if precision == "pure-bf16" else torch.float32).train()


def batch_of(case: Case, model: Any) -> dict[str, Any]:
    """Random rows of the requested size."""
    import torch

    if case.shape.startswith("vit"):
        pixels = torch.randn(case.batch, 3, 224, 224, device="cuda", dtype=model.dtype)
        return {"pixel_values": pixels, "labels": torch.zeros(case.batch, dtype=torch.long, device="cuda")}
    ids = torch.randint(3, 380, (case.batch, case.seq), device="cuda")
    mask = torch.ones_like(ids)
    if case.padded:
        mask[case.batch // 2 :, -(case.seq // 4) :] = 0
    labels = torch.randint(3, 380, (case.batch, case.target or case.seq), device="cuda")
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def measure(case: Case, model: Any) -> dict[str, int]:
    """Run two steps; return the peaks of the second."""
    import torch

    (model.gradient_checkpointing_enable if case.checkpointing else model.gradient_checkpointing_disable)()
    batch = batch_of(case, model)
    chosen: dict[str, Any] = {"fused": True} if case.optimizer == "adamw-fused" else {"foreach": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **chosen)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(case.precision)
    peaks: dict[str, int] = {}

    def note(name: str) -> None:
        peaks[name] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", dtype=half, enabled=half is not None):
            loss = model(**batch).loss
        note("forward")
        loss.backward()
        note("backward")
        optimizer.step()
        note("step")
        optimizer.zero_grad(set_to_none=True)
        del loss
    return {"parameters": sum(each.numel() for each in model.parameters()), "peak": max(peaks.values()), **peaks}


def measure_all(wanted: Iterable[Case], minutes: float) -> dict[str, Any]:
    """Measure until the time is up. Models are built once per precision and attention."""
    import torch
    import transformers

    until = time.monotonic() + 60 * minutes
    groups: dict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for case in wanted:
        stored = "pure-bf16" if case.precision == "pure-bf16" else "fp32"
        groups[case.shape, stored, case.attention].append(case)
    rows: list[dict[str, Any]] = []
    for (shape, stored, attention), group in groups.items():
        if time.monotonic() > until:
            break
        model = build(shape, stored, attention)
        for case in group:
            if time.monotonic() > until:
                break
            rows.append({**asdict(case), **measure(case, model)})
            gc.collect()
            torch.cuda.empty_cache()
        del model
        gc.collect()
        torch.cuda.empty_cache()
        print(f"measured {shape}, {stored}, {attention}: {len(rows)} cases", file=sys.stderr, flush=True)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    versions["bias_kernel"] = installed_transformers().bias_kernel
    return {"device": torch.cuda.get_device_name(), **versions, "cases": rows}


def compare(measured: dict[str, Any], *, each: bool) -> float:
    """Print estimate against measurement; return the largest error."""
    rows: list[tuple[float, Case, Estimate, dict[str, Any]]] = []
    for row in measured["cases"]:
        case = Case(**{name: row[name] for name in Case.__dataclass_fields__})
        said = estimated(case, measured["bias_kernel"])
        rows.append((said.peak / row["peak"] - 1, case, said, row))
    print(f"{measured['device']}, torch {measured['torch']}, transformers {measured['transformers']}\n")
    if each:
        for error, case, said, row in sorted(rows, key=lambda one: one[0]):
            again = "checkpointing" if case.checkpointing else ""
            what = f"{case.shape:14s} {case.precision:10s} {case.batch:3d} x {case.seq:<5d} {case.optimizer:12s} "
            more = (
                f"{case.attention} {again} {'padded' if case.padded else ''} {f'lora {case.lora}' if case.lora else ''}"
            )
            print(f"{100 * error:+6.1f} %  {said.peak / MIB:8.0f} of {row['peak'] / MIB:8.0f} MiB  {what}{more}")
        print()
    print(f"{'model':14s} {'cases':>5s}  {'mean error':>10s}  {'worst':>7s}  parameters")
    for shape in dict.fromkeys(case.shape for _, case, _, _ in rows):
        of_shape = [one for one in rows if one[1].shape == shape]
        errors = [error for error, *_ in of_shape]
        exact = all(said.parameters == row["parameters"] for _, _, said, row in of_shape)
        worst = max(errors, key=abs)
        mean = statistics.mean(map(abs, errors))
        counted = "exact" if exact else "differ"
        print(f"{shape:14s} {len(errors):5d}  {100 * mean:9.1f} %  {100 * worst:+6.1f} %  {counted}")
    return max(abs(error) for error, *_ in rows)


def main() -> int:
    """Measure or read, compare, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", type=Path, help="measurements that were written before")
    parser.add_argument("--write", type=Path, help="write the measurements here")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="the models to measure")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop measuring after so long")
    parser.add_argument("--each", action="store_true", help="print every case")
    chosen = parser.parse_args()
    if chosen.read is None:
        measured = measure_all(cases(chosen.shapes), chosen.minutes)
    else:
        measured = json.loads(chosen.read.read_text())
    if chosen.write is not None:
        lines = ",\n".join(json.dumps(row) for row in measured["cases"])
        head = json.dumps({name: value for name, value in measured.items() if name != "cases"})
        chosen.write.write_text(f'{head[:-1]}, "cases": [\n{lines}\n]}}\n')
    worst = compare(measured, each=chosen.each)
    verdict = "PASS" if worst <= PROMISE else "FAIL"
    print(f"\n{verdict}  worst error {100 * worst:.1f} %, promised at most {100 * PROMISE:.0f} %")
    return int(worst > PROMISE)


if __name__ == "__main__":
    sys.exit(main())
