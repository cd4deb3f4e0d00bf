"""Bytes per input element that operations keep for the backward pass.

Each result is a pair: always kept, and kept only for gradients of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stayfinite.inspection.memory.plan import Plan, Precision, Shape

Kept = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCost:
    """Memory of logits and loss, in bytes."""

    forward: int
    """Peak while the loss is computed."""
    kept: int
    """Between the passes."""
    backward: int
    """Peak at the start of the backward pass."""
    handed_on: int
    """The gradient of the logits."""


def norm(shape: Shape, precision: Precision) -> Kept:
    """The normalization before or after a part."""
    if shape.family in ("bert", "gpt2", "vit"):
        return precision.residual, 0
    # Explicit in the model: the square keeps its fp32 input, the product with the weight keeps the normalized one.
    if precision.residual == 4:
        return 4, 4
    # In pure bf16, T5 multiplies the narrow input, so both copies are kept.
    return (4 + 2, 2) if shape.family == "t5" else (4, 2)


def inputs_of(matrices: int, precision: Precision) -> int:
    """The input shared by several matrices; autocast casts it for each."""
    return matrices * precision.compute if precision.autocast else precision.compute


def dropout_mask(rate: float) -> int:
    """One byte per element."""
    return int(rate > 0)


def activation(shape: Shape, precision: Precision) -> Kept:
    """Everything between the feed-forward matrices, per inner element."""
    compute = precision.compute
    if shape.activation == "gelu_new":
        # Explicit in the model. Autocast computes the power in fp32, and its results stay in fp32.
        wide = 4 if precision.autocast else compute
        kept, result = 3 * wide + compute, wide
    elif shape.activation == "relu":
        kept, result = 0, compute
    else:
        kept, result = compute, compute
    if shape.gated:
        kept += result + compute
    elif shape.activation == "relu":
        kept += result
        if not shape.dropout:
            return kept, 0
    if shape.family == "t5" and shape.dropout:
        kept += 1
    return kept, compute


def loss_cost(shape: Shape, plan: Plan, rows: int) -> LossCost:
    """Logits, their logarithms and the gradients of both.

    LLaMA and GPT-2 cast their logits to fp32 before the loss. T5 and BERT do not: autocast then casts the logarithms,
    and pure bf16 stays in bf16.
    """
    precision = plan.precision
    wide = rows * shape.outputs * 4
    half = wide // 2
    if precision.compute == 4:
        forward, kept, backward = 2 * wide, wide, 3 * wide
    elif shape.family in ("llama", "gpt2"):
        forward, kept, backward = 2 * wide + half, wide, 3 * wide
    elif precision.autocast:
        forward, kept, backward = 2 * wide, wide + half, 2 * wide + half
    else:
        forward, kept, backward = wide, half, wide + half
    return LossCost(forward=forward, kept=kept, backward=backward, handed_on=rows * shape.outputs * precision.compute)


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
    """The attention kernel that runs.

    ``eager`` is the model's own code. ``math`` is the fallback of scaled_dot_product_attention, which computes half
    precision in fp32. ``efficient`` and ``flash`` never store the scores: they keep queries, keys, values, the output
    and one number per row.

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
