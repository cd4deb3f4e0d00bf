"""Bytes of weights, gradients and optimizer states."""

from __future__ import annotations

from dataclasses import dataclass

from stayfinite.inspection.memory.optimizers import optimizer_named
from stayfinite.inspection.memory.parts import Layout, Part
from stayfinite.inspection.memory.plan import Plan

ADAPTER = 4  # adapters are stored in fp32

_QUANTISED = {"8bit": 1.0 + 4 / 1024, "4bit": 0.5 + 4 / 64}
"""Bytes per weight: 8-bit with a scale per row, 4-bit with one per 64 elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """In bytes, except the counts."""

    count: int
    trained: int
    held: int
    gradients: int
    state: int
    step: int


def adapters_in(part: Part, plan: Plan) -> int:
    """Elements of the adapters of a part."""
    return sum(plan.lora * (inputs + outputs) for inputs, outputs in part.adapted)


def trained_bytes(part: Part, plan: Plan) -> int:
    """Bytes of the gradients that a part's backward pass creates."""
    if plan.lora:
        return ADAPTER * adapters_in(part, plan)
    return plan.precision.stored * (part.matrices + part.vectors + part.table * (not part.shares_table))


def weights_of(layout: Layout, plan: Plan) -> Weights:
    """The weights of a whole model."""
    parts = layout.parts()
    matrices = sum(part.matrices for part in parts)
    tables = sum(part.table for part in parts if not part.shares_table)
    vectors = sum(part.vectors for part in parts)
    output = sum(part.matrices for part in parts if part.name == "output")
    stored = plan.precision.stored
    optimizer = optimizer_named(plan.optimizer)
    adapters = sum(adapters_in(part, plan) for part in parts)
    largest = max(max(part.matrices // (1 if part.name == "output" else 3), part.table) for part in parts)
    held = (matrices + tables + vectors) * stored
    if plan.base != "full":
        # Only the blocks' matrices are quantized. The rest becomes fp32 for training.
        held = int((matrices - output) * _QUANTISED[plan.base]) + (output + tables + vectors) * 4
    if plan.lora:
        return Weights(
            count=matrices + tables + vectors + adapters,
            trained=adapters,
            held=held + adapters * ADAPTER,
            gradients=adapters * ADAPTER,
            state=optimizer.state(matrices=adapters, tables=0, vectors=0, stored=ADAPTER),
            step=optimizer.step(weights=adapters, largest=adapters // max(1, len(parts)), stored=ADAPTER),
        )
    # If no table is separate, the output matrix is also the embedding.
    shared = 0 if tables else output
    return Weights(
        count=matrices + tables + vectors,
        trained=matrices + tables + vectors,
        held=held,
        gradients=held,
        state=optimizer.state(matrices=matrices - shared, tables=tables + shared, vectors=vectors, stored=stored),
        step=optimizer.step(weights=matrices + tables + vectors, largest=largest, stored=stored),
    )
