"""Peak compute rates and memory bandwidth of cards.

Dense TFLOP/s of matrix products with fp32 accumulation, and GB/s, from the vendors' data sheets: NVIDIA T4, V100
(SXM2), A10, A100, L4, L40S, H100 (SXM), H200, B200, GeForce RTX 3090 and 4090; AMD MI300X. Training reaches only the
share given by EFFICIENCY.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import nn

from stayfinite.autopsy.steps import changes
from stayfinite.precision.applying import apply, undo
from stayfinite.precision.candidates import HALVES, Assignment
from stayfinite.precision.emulating import autocast_region
from stayfinite.precision.units import multiplies
from stayfinite.rules.cards import Card

EFFICIENCY = {"fp32": 0.7, "tf32": 0.6, "bf16": 0.6, "fp16": 0.6, "fp8": 0.5, "fp8-rowwise": 0.4}
"""Share of the peak that products of usual size reach: assumed, not measured."""
MEMORY = 0.75
"""Share of the bandwidth that elementwise operators reach."""
LAUNCH = 4e-6
"""Minimum seconds per operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of one card."""

    fp32: float
    tf32: float = 0.0
    half: float = 0.0
    fp8: float = 0.0
    bandwidth: float

    def flops(self, kind: str) -> float:
        """Achieved FLOP/s in a format; 0 if the card lacks it."""
        peak = {"fp32": self.fp32, "tf32": self.tf32, "bf16": self.half, "fp16": self.half}.get(kind, self.fp8)
        return peak * 1e12 * EFFICIENCY[kind]

    @property
    def bytes(self) -> float:
        """Achieved bytes per second."""
        return self.bandwidth * 1e9 * MEMORY


_RATES = {
    "T4": Rates(fp32=8.1, half=65, bandwidth=320),
    "V100": Rates(fp32=15.7, half=125, bandwidth=900),
    "A10": Rates(fp32=31.2, tf32=62.5, half=125, bandwidth=600),
    "A100": Rates(fp32=19.5, tf32=156, half=312, bandwidth=1555),
    "L4": Rates(fp32=30.3, tf32=60, half=121, fp8=242, bandwidth=300),
    "L40S": Rates(fp32=91.6, tf32=183, half=362, fp8=733, bandwidth=864),
    "H100": Rates(fp32=67, tf32=494, half=989, fp8=1979, bandwidth=3350),
    "H200": Rates(fp32=67, tf32=494, half=989, fp8=1979, bandwidth=4800),
    "B200": Rates(fp32=75, tf32=1125, half=2250, fp8=4500, bandwidth=8000),
    "RTX 3090": Rates(fp32=35.6, tf32=35.6, half=71, bandwidth=936),
    "RTX 4090": Rates(fp32=82.6, tf32=82.6, half=165, fp8=330, bandwidth=1008),
    "MI300X": Rates(fp32=163.4, tf32=653.7, half=1307, fp8=2614, bandwidth=5300),
}


def rates_of(card: Card) -> Rates | None:
    """The rates of a card, or None if unknown."""
    return _RATES.get(card.name)


WARMUP = 2
MOST_PASSES, ENOUGH = 5, 1.0
"""Timed passes at most, and seconds after which to stop."""
KERNELS = {"fp32": 3, "tf32": 3, "bf16": 6, "fp16": 6, "fp8": 12, "fp8-rowwise": 14}
"""Kernels per linear layer, forward and backward, including casts."""
CASTS = {"fp32": 0, "tf32": 0, "bf16": 6, "fp16": 6, "fp8": 10, "fp8-rowwise": 14}
"""Bytes moved to cast one operand element: read, write, and for fp8 the amax."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of one module in a step."""

    name: str
    products: float
    """FLOPs of the forward pass; 0 if there are no matrix products."""
    weights: int
    moved: int
    """Elements read and written."""


def work_of(name: str, module: nn.Module, rows: int, moved: int) -> Work:
    """The work of a module for this many rows."""
    weights = sum(p.numel() for p in module.parameters())
    per_row = sum(p.numel() for p in module._parameters.values() if p is not None and p.dim() > 1)
    return Work(name=name, products=2.0 * rows * per_row if multiplies(module) else 0.0, weights=weights, moved=moved)


def estimated_seconds(works: Iterable[Work], assignment: Assignment, rates: Rates) -> float:
    """Seconds of forward, backward and update."""
    return sum(seconds_of(work, _kind(work, assignment), assignment.base, rates) for work in works)


def seconds_of(work: Work, kind: str, base: str, rates: Rates) -> float:
    """Seconds of one module in a format: compute or memory, whichever is slower, plus casts, launches and update."""
    width = 2 if base in HALVES and kind != "fp32" else 4
    # The backward pass reads what the forward pass read, plus gradients.
    traffic = 3 * width * work.moved / rates.bytes
    update = 28 * work.weights / rates.bytes  # Adam reads and writes weights, gradients and two moments in fp32
    if not work.products:
        return max(traffic, 2 * LAUNCH) + update
    computing = 3 * work.products / max(rates.flops(kind), 1.0)
    casts = CASTS[kind] * (work.weights + work.moved) / rates.bytes
    return max(computing, traffic, KERNELS[kind] * LAUNCH) + casts + update


def saved_bytes(works: Iterable[Work], assignment: Assignment) -> float:
    """Activation bytes saved against fp32 by half-precision inputs of products."""
    if assignment.base not in HALVES:
        return 0.0
    halved = (work for work in works if work.products and _kind(work, assignment) != "fp32")
    return sum(2.0 * work.moved / 2 - 2.0 * work.weights for work in halved)


def _kind(work: Work, assignment: Assignment) -> str:
    return assignment.formats.get(work.name, assignment.base)


def measured_seconds(
    model: nn.Module, run: Callable[[], Any], assignment: Assignment, *, compiled: bool = False
) -> float:
    """Seconds of a forward and backward pass on the card.

    Arguments:
        run: one pass; its autocast is ignored, and the caller restores the gradients.
        compiled: torch.compile the repeated blocks first.
    """
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if assignment.base == "fp32" else "high")
    apply(model, assignment, region=False)
    device, half = next(model.parameters()).device.type, HALVES.get(assignment.base)
    try:
        with (
            changes.own_autocast_ignored(),
            autocast_region(device, half),
            compiled_blocks(model) if compiled else nullcontext(),
        ):
            for _ in range(WARMUP):
                run()
            taken: list[float] = []
            while len(taken) < MOST_PASSES and sum(taken) < ENOUGH:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run()
                end.record()
                torch.cuda.synchronize()
                taken.append(float(start.elapsed_time(end)) / 1000)
        return statistics.median(taken)
    finally:
        undo(model)
        torch.set_float32_matmul_precision(matmul)


@contextmanager
def compiled_blocks(model: nn.Module) -> Iterator[None]:
    """Compile the model's repeated blocks in place, so that blocks of one class share code."""
    dynamo: Any = import_module("torch._dynamo")
    blocks = blocks_of(model)
    before = [block._compiled_call_impl for block in blocks]
    dynamo.reset()
    try:
        # Blocks with different fp32 layers compile separately.
        with dynamo.config.patch(recompile_limit=64):
            for block in blocks:
                block.compile(dynamic=False)
            yield
    finally:
        for block, call in zip(blocks, before, strict=True):
            block._compiled_call_impl = call
        dynamo.reset()


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The outermost repeated blocks of the model; the model itself if there are none."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        children = list(module.named_children())
        alike = len(children) > 1 and len({type(child) for _, child in children}) == 1
        within = name.startswith(tuple(f"{block}." for block in found))
        composed = any(True for _, child in children for _ in child.children())
        if isinstance(module, nn.ModuleList | nn.Sequential) and alike and composed and not within:
            found.update({f"{name}.{child}".strip("."): block for child, block in children})
    return list(found.values()) or [model]
