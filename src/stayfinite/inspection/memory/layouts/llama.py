"""LLaMA, Mistral, Qwen, SmolLM, TinyLlama: one causal stack, gated, grouped queries, rotary positions."""

from __future__ import annotations

from stayfinite.inspection.memory.keeping import loss_cost
from stayfinite.inspection.memory.layouts import pieces
from stayfinite.inspection.memory.parts import Layout, Segment
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape


def llama_layout(shape: Shape, plan: Plan) -> Layout:
    """A language model, or a classifier that uses one token per row."""
    residual, tokens = plan.precision.residual, plan.tokens
    rows = tokens if shape.per_token else plan.batch
    # Such a classifier computes logits for every token and then picks one.
    block = (
        pieces.attention_part(shape, plan, queries=plan.seq, keys=plan.seq),
        pieces.feed_forward_part(shape, plan, tokens),
    )
    return Layout(
        segments=(
            Segment(
                parts=(
                    pieces.table_part(
                        shape, plan, tokens, rows=shape.vocabulary, shared=shape.tied and not shape.classes
                    ),
                )
            ),
            Segment(parts=block, times=shape.layers, entry=tokens * shape.width * residual),
            Segment(parts=(pieces.final_norm_part(shape, plan, tokens), pieces.output_part(shape, plan, tokens))),
        ),
        loss=loss_cost(shape, plan, rows),
        always=2 * plan.seq * shape.head_width * residual,
    )
