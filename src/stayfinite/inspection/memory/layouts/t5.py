"""T5, mT5, ByT5, FLAN-T5: two stacks, relative positions, dropout everywhere."""

from __future__ import annotations

from stayfinite.inspection.memory.keeping import dropout_mask, loss_cost
from stayfinite.inspection.memory.layouts import pieces
from stayfinite.inspection.memory.parts import Layout, Part, Segment
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape


def t5_layout(shape: Shape, plan: Plan) -> Layout:
    """Encoder, decoder with cross-attention, and an output layer tied to the embedding."""
    residual = plan.precision.residual
    tokens, targets = plan.tokens, plan.target_tokens
    mask = dropout_mask(shape.dropout)
    table = pieces.table_part(shape, plan, tokens, rows=shape.vocabulary, shared=True, kept=mask)
    target_table = pieces.table_part(shape, plan, targets, rows=shape.vocabulary, shared=True, kept=mask)
    encoder = (
        pieces.attention_part(shape, plan, queries=plan.seq, keys=plan.seq),
        pieces.feed_forward_part(shape, plan, tokens),
    )
    decoder = (
        pieces.attention_part(shape, plan, queries=plan.target_seq, keys=plan.target_seq),
        pieces.attention_part(shape, plan, queries=plan.target_seq, keys=plan.seq, role="cross"),
        pieces.feed_forward_part(shape, plan, targets),
    )
    # Biases of the three kinds of attention, and the encoder's output, which every decoder layer reads.
    biases = shape.heads * (plan.seq**2 + plan.target_seq**2 + plan.seq * plan.target_seq) * residual
    first_tables = 2 * shape.buckets * shape.heads
    last = pieces.output_part(shape, plan, targets)
    relative = Part(name="relative positions", vectors=first_tables)
    return Layout(
        segments=(
            Segment(parts=(table, relative)),
            Segment(parts=encoder, times=shape.layers, entry=tokens * shape.width * residual),
            Segment(parts=(pieces.final_norm_part(shape, plan, tokens, shape.dropout),)),
            Segment(parts=(target_table,)),
            Segment(parts=decoder, times=shape.decoder_layers, entry=targets * shape.width * residual),
            Segment(parts=(pieces.final_norm_part(shape, plan, targets, shape.dropout), last)),
        ),
        loss=loss_cost(shape, plan, targets),
        always=biases + tokens * shape.width * residual,
    )
