"""GPT-2: one causal stack, fused query-key-value matrix, learned positions."""

from __future__ import annotations

from stayfinite.inspection.memory.keeping import dropout_mask, loss_cost
from stayfinite.inspection.memory.layouts import pieces
from stayfinite.inspection.memory.parts import Layout, Segment
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape


def gpt2_layout(shape: Shape, plan: Plan) -> Layout:
    """A language model with tied embeddings."""
    tokens = plan.tokens
    table = pieces.table_part(
        shape,
        plan,
        tokens,
        rows=shape.vocabulary,
        shared=shape.tied and not shape.classes,
        vectors=shape.positions * shape.width,
        kept=dropout_mask(shape.dropout),
    )
    block = (
        pieces.attention_part(shape, plan, queries=plan.seq, keys=plan.seq, fused=True),
        pieces.feed_forward_part(shape, plan, tokens),
    )
    rows = tokens if shape.per_token else plan.batch
    return Layout(
        segments=(
            Segment(parts=(table,)),
            Segment(parts=block, times=shape.layers, entry=tokens * shape.width * plan.precision.residual),
            Segment(parts=(pieces.final_norm_part(shape, plan, tokens), pieces.output_part(shape, plan, tokens))),
        ),
        loss=loss_cost(shape, plan, rows),
    )
