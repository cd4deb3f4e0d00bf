"""Parts shared by several families."""

from __future__ import annotations

from stayfinite.inspection.memory.keeping import Role, activation, attention_cost, dropout_mask, inputs_of, norm
from stayfinite.inspection.memory.parts import Part
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape


def norm_weights(shape: Shape) -> int:
    """LayerNorm has a bias, RMSNorm does not."""
    return shape.width * (1 if shape.family in ("t5", "llama") else 2)


def attention_part(
    shape: Shape, plan: Plan, *, queries: int, keys: int, role: Role = "self", fused: bool = False, buckets: int = 0
) -> Part:
    """Norm, projections, attention, output projection, dropout.

    ``queries`` and ``keys`` are tokens per row and per attended row; ``fused``: one matrix for queries, keys and
    values; ``buckets``: rows of a relative position table in this part.
    """
    precision, width = plan.precision, shape.width
    tokens, sources = plan.batch * queries, plan.batch * keys
    kept, for_weights = norm(shape, precision)
    cost = attention_cost(shape, plan, role, queries, keys)
    readers = 1 if fused or role == "cross" else 3
    inputs = tokens * width * inputs_of(readers, precision)
    if role == "cross" and precision.autocast:
        inputs += sources * width * inputs_of(2, precision)
    # Queries and keys leave autocast's products in half precision, but their norm keeps them in fp32.
    kept_heads, heads_for_weights = (4, for_weights) if shape.head_norms else (0, 0)
    normed_heads = tokens * (shape.inner + shape.kv_inner)
    biases = (shape.inner + 2 * shape.kv_inner) * shape.qkv_bias + width * shape.output_bias
    return Part(
        name=f"{role}-attention",
        matrices=2 * width * shape.inner + 2 * width * shape.kv_inner,
        vectors=biases + norm_weights(shape) + buckets * shape.heads + 2 * shape.head_width * shape.head_norms,
        kept=tokens * width * (kept + dropout_mask(shape.dropout)) + cost.kept + normed_heads * kept_heads,
        kept_for_weights=tokens * width * for_weights + inputs + cost.for_weights + normed_heads * heads_for_weights,
        working=tokens * width * precision.residual + tokens * shape.inner * precision.compute + cost.working,
        adapted=((width, shape.inner + 2 * shape.kv_inner),)
        if fused
        else ((width, shape.inner), (width, shape.kv_inner)),
        adapted_tokens=tokens,
    )


def feed_forward_part(shape: Shape, plan: Plan, tokens: int) -> Part:
    """Norm, two or three matrices, activation, dropout."""
    precision, width = plan.precision, shape.width
    kept, for_weights = norm(shape, precision)
    between, between_for_weights = activation(shape, precision)
    readers = 2 if shape.gated else 1
    return Part(
        name="feed-forward",
        matrices=shape.matrices_in_ff * width * shape.ff,
        vectors=norm_weights(shape) + ((1 + shape.gated) * shape.ff + width) * shape.ff_bias,
        kept=tokens * (width * (kept + dropout_mask(shape.dropout)) + shape.ff * between),
        kept_for_weights=tokens
        * (width * (for_weights + inputs_of(readers, precision)) + shape.ff * between_for_weights),
        working=tokens * (width * precision.residual + 2 * shape.ff * precision.compute),
    )


def final_norm_part(shape: Shape, plan: Plan, tokens: int, dropout: float = 0.0) -> Part:
    """The last norm of a stack."""
    kept, for_weights = norm(shape, plan.precision)
    return Part(
        name="final norm",
        vectors=norm_weights(shape),
        kept=tokens * shape.width * (kept + dropout_mask(dropout)),
        kept_for_weights=tokens * shape.width * for_weights,
        working=2 * tokens * shape.width * 4,
    )


def output_part(shape: Shape, plan: Plan, rows: int, *, bias: bool = False) -> Part:
    """The matrix that computes logits."""
    return Part(
        name="output",
        matrices=shape.width * shape.outputs,
        vectors=shape.outputs * bias,
        kept_for_weights=rows * shape.width * plan.precision.compute,
        working=rows * shape.width * 4,
    )


def table_part(
    shape: Shape, plan: Plan, tokens: int, *, shared: bool | None = None, vectors: int = 0, kept: int = 0
) -> Part:
    """An embedding with its norm and dropout; by default shared with the output layer if tied and no classifier."""
    return Part(
        name="embedding",
        table=shape.vocabulary * shape.width,
        shares_table=shape.tied and not shape.classes if shared is None else shared,
        vectors=vectors,
        kept=tokens * 8 + tokens * shape.width * kept,
        working=tokens * shape.width * plan.precision.residual,
    )
