"""Bytes per input element that operations keep for the backward pass.

Each result is a pair: always kept, and kept only for gradients of weights.
"""

from __future__ import annotations

from stayfinite.inspection.memory.parts import LossCost
from stayfinite.inspection.memory.plan import Plan, Precision
from stayfinite.inspection.memory.shape import Shape

Kept = tuple[int, int]


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
