"""Memory that attention keeps for its backward pass, by kernel.

``eager`` is the model's own code. ``math`` is the fallback of scaled_dot_product_attention, which computes half
precision in fp32. ``efficient`` and ``flash`` never store the scores: they keep queries, keys, values, the output and
one number per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape

Kernel = Literal["eager", "math", "efficient", "flash"]
Role = Literal["self", "cross"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCost:
    """In bytes."""

    kept: int
    """Needed for the gradient of the input, so also with frozen weights."""
    for_weights: int
    """Needed only for the gradient of the output projection."""
    working: int
    """Temporary, in the backward pass."""


def kernel_for(shape: Shape, plan: Plan, role: Role) -> Kernel:
    """The kernel that runs.

    T5's self-attention falls back to ``math`` because fast kernels refuse its bias, a permuted view. So do grouped
    queries without flash, in fp32 and on GPUs before Ampere: the efficient kernel has no groups.
    """
    if plan.attention == "eager":
        return "eager"
    if shape.family == "t5":
        return plan.bias_kernel if role == "self" or plan.bias_kernel == "eager" else "efficient"
    if plan.padded and shape.vocabulary:
        return "efficient"
    if plan.precision.compute == 4 or not plan.flash:
        return "math" if shape.kv_heads < shape.heads else "efficient"
    return "flash"


def attention_cost(shape: Shape, plan: Plan, role: Role, queries: int, keys: int) -> AttentionCost:
    """The cost of one attention part; ``queries`` and ``keys`` are tokens per row and per attended row."""
    kernel = kernel_for(shape, plan, role)
    scores = plan.batch * shape.heads * queries * keys
    out = plan.batch * queries * shape.inner * plan.precision.compute
    if kernel in ("efficient", "flash"):
        return _without_scores(shape, plan, role, queries, keys, kernel)
    width = 4 if kernel == "math" else plan.precision.compute
    projected = plan.batch * (queries * shape.inner + 2 * keys * shape.inner) * width
    kept_scores = _kept_scores(shape, plan, kernel)
    wide = 4 if plan.precision.autocast or kernel == "math" else width
    return AttentionCost(kept=projected + scores * kept_scores, for_weights=out, working=2 * scores * wide)


def _without_scores(shape: Shape, plan: Plan, role: Role, queries: int, keys: int, kernel: Kernel) -> AttentionCost:
    compute = plan.precision.compute
    kv = shape.kv_inner if kernel == "flash" else shape.inner
    projected = plan.batch * (queries * shape.inner + 2 * keys * kv) * compute
    out = plan.batch * queries * shape.inner * compute
    statistics = plan.batch * shape.heads * queries * 4
    one = queries * keys * compute
    mask = plan.batch * one if plan.padded else 0
    working = projected
    if shape.family == "t5":
        # The bias has a plane per head; a mask multiplies that by the rows of the batch.
        mask *= shape.heads
        if role == "self":
            mask = mask or shape.heads * one
            working += plan.batch * shape.heads * one
    return AttentionCost(kept=projected + statistics + mask + out, for_weights=0, working=working + mask)


def _kept_scores(shape: Shape, plan: Plan, kernel: Kernel) -> int:
    """Bytes kept per score."""
    precision = plan.precision
    dropped = shape.attention_dropout > 0
    if kernel == "math":
        # Probabilities in fp32; with dropout also the mask and the result.
        return 4 + (1 + 4) * dropped
    upcast = shape.family in ("llama", "vit")
    probabilities = 4 if precision.autocast or upcast else precision.compute
    again = precision.compute if dropped or precision.compute < probabilities else 0
    return probabilities + again + dropped
