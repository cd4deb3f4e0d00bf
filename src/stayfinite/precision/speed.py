"""What an assignment gains: estimated from a card's rates module by module, or measured on the card itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stayfinite.precision.applying import apply, undo
from stayfinite.precision.candidates import HALVES, Assignment
from stayfinite.precision.rates import LAUNCH, Rates
from stayfinite.precision.units import multiplies

WARMUP, TIMED = 3, 5
KERNELS = {"fp32": 3, "tf32": 3, "bf16": 6, "fp16": 6, "fp8": 12, "fp8-rowwise": 14}
"""Operators of a linear layer, forward and backward, with the casts of its format."""
CASTS = {"fp32": 0, "tf32": 0, "bf16": 6, "fp16": 6, "fp8": 10, "fp8-rowwise": 14}
"""Bytes that casting one number of an operand moves: read, written, and for fp8 its largest magnitude looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one module does in a step."""

    name: str
    products: float
    """Multiply-adds, times two, of its forward pass; 0 where it is none of products."""
    weights: int
    moved: int
    """Numbers that go in and out."""


def work_of(name: str, module: nn.Module, rows: int, moved: int) -> Work:
    """What a module does with so many rows."""
    weights = sum(p.numel() for p in module.parameters())
    per_row = sum(p.numel() for p in module._parameters.values() if p is not None and p.dim() > 1)
    return Work(name=name, products=2.0 * rows * per_row if multiplies(module) else 0.0, weights=weights, moved=moved)


def estimated_seconds(works: Iterable[Work], assignment: Assignment, rates: Rates) -> float:
    """Seconds of a step, forward, backward and the update."""
    return sum(seconds_of(work, _kind(work, assignment), assignment.base, rates) for work in works)


def seconds_of(work: Work, kind: str, base: str, rates: Rates) -> float:
    """Seconds of one module in a format: the larger of computing and reading, casts, launches, the update."""
    width = 2 if base in HALVES and kind != "fp32" else 4
    # The backward pass reads what the forward pass did, and gradients beside it.
    traffic = 3 * width * work.moved / rates.bytes
    update = 28 * work.weights / rates.bytes  # Adam reads and writes weights, gradients and two moments in fp32
    if not work.products:
        return max(traffic, 2 * LAUNCH) + update
    computing = 3 * work.products / max(rates.flops(kind), 1.0)
    casts = CASTS[kind] * (work.weights + work.moved) / rates.bytes
    return max(computing, traffic, KERNELS[kind] * LAUNCH) + casts + update


def saved_bytes(works: Iterable[Work], assignment: Assignment) -> float:
    """Bytes that are kept less for the backward pass than in fp32: inputs of products in half precision."""
    if assignment.base not in HALVES:
        return 0.0
    halved = (work for work in works if work.products and _kind(work, assignment) != "fp32")
    return sum(2.0 * work.moved / 2 - 2.0 * work.weights for work in halved)


def _kind(work: Work, assignment: Assignment) -> str:
    return assignment.formats.get(work.name, assignment.base)


def measured_seconds(
    model: nn.Module, run: Callable[[], Any], assignment: Assignment, *, compile_with: str | None = None
) -> float:
    """Seconds of a forward and backward pass on the card, by its own clock.

    Arguments:
        run: one pass; the model's gradients are its caller's to put back.
        compile_with: a backend of torch.compile; eager when left out.
    """
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if assignment.base == "fp32" else "high")
    apply(model, assignment, region=True)
    try:
        runs = torch.compile(run, backend=compile_with) if compile_with else run
        for _ in range(WARMUP):
            runs()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(TIMED):
            runs()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1000 / TIMED
    finally:
        undo(model)
        torch.set_float32_matmul_precision(matmul)
