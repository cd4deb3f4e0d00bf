"""What single operations keep for the backward pass, in bytes for each element of their input.

Two numbers everywhere: what is kept in any case, and what is kept for the gradients of weights alone.
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
    # Written out in the model: the square keeps its input in fp32, the weight's product keeps the normalized one.
    if precision.residual == 4:
        return 4, 4
    # In pure bf16 T5 multiplies the narrow input, so both copies of it are kept.
    return (4 + 2, 2) if shape.family == "t5" else (4, 2)


def inputs_of(matrices: int, precision: Precision) -> int:
    """The input that several matrices share. Autocast casts it for each of them."""
    return matrices * precision.compute if precision.autocast else precision.compute


def dropout_mask(rate: float) -> int:
    """One byte an element."""
    return int(rate > 0)


def activation(shape: Shape, precision: Precision) -> Kept:
    """Everything between the matrices of the feed-forward part, for each element of its inner layer."""
    compute = precision.compute
    if shape.activation == "gelu_new":
        # Written out in the model. Autocast computes the power in fp32, and what follows from it stays there.
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
