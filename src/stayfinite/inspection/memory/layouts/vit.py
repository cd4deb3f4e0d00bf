"""ViT and DeiT: image patches as tokens, pre-norm, a classifier on the first token."""

from __future__ import annotations

from dataclasses import replace

from stayfinite.inspection.memory.keeping import dropout_mask, loss_cost
from stayfinite.inspection.memory.layouts import pieces
from stayfinite.inspection.memory.parts import Layout, Part, Segment
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape


def vit_layout(shape: Shape, plan: Plan) -> Layout:
    """The image gives the sequence length; `plan.seq` is ignored."""
    seq = shape.image_tokens
    plan = replace(plan, seq=seq, target_seq=seq, padded=False)
    precision, width = plan.precision, shape.width
    pixels = plan.batch * shape.channels * shape.image**2
    patches = Part(
        name="patches",
        matrices=width * shape.channels * shape.patch**2,
        vectors=width + (seq + 1) * width,
        kept=plan.tokens * width * dropout_mask(shape.dropout),
        kept_for_weights=pixels * precision.compute,
        working=plan.tokens * width * precision.residual,
    )
    block = (
        pieces.attention_part(shape, plan, queries=seq, keys=seq),
        pieces.feed_forward_part(shape, plan, plan.tokens),
    )
    return Layout(
        segments=(
            Segment(parts=(patches,)),
            Segment(parts=block, times=shape.layers, entry=plan.tokens * width * precision.residual),
            Segment(
                parts=(
                    pieces.final_norm_part(shape, plan, plan.tokens),
                    pieces.output_part(shape, plan, plan.batch, bias=True),
                )
            ),
        ),
        loss=loss_cost(shape, plan, plan.batch),
        always=pixels * precision.stored,
    )
