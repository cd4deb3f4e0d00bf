"""BERT, RoBERTa, DistilBERT and similar: one stack, post-norm, learned positions."""

from __future__ import annotations

from stayfinite.inspection.memory.keeping import dropout_mask, loss_cost
from stayfinite.inspection.memory.layouts import pieces
from stayfinite.inspection.memory.parts import Layout, Part, Segment
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape


def bert_layout(shape: Shape, plan: Plan) -> Layout:
    """With a masked-language-model head or a classifier."""
    precision, width, tokens = plan.precision, shape.width, plan.tokens
    table = pieces.table_part(
        shape,
        plan,
        tokens,
        rows=shape.vocabulary,
        shared=shape.tied and not shape.classes,
        vectors=(shape.positions + shape.types) * width + 2 * width,
        kept=precision.residual + dropout_mask(shape.dropout),
    )
    block = (
        pieces.attention_part(shape, plan, queries=plan.seq, keys=plan.seq),
        pieces.feed_forward_part(shape, plan, tokens),
    )
    rows = tokens if shape.per_token else plan.batch
    head: tuple[Part, ...] = ()
    if not shape.classes:
        head = (_transform(shape, plan, rows),)
    elif shape.pooler:
        head = (Part(name="pooler", matrices=width * width, vectors=width, kept=rows * width * precision.compute),)
    return Layout(
        segments=(
            Segment(parts=(table,)),
            Segment(parts=block, times=shape.layers, entry=tokens * width * precision.residual),
            Segment(parts=(*head, pieces.output_part(shape, plan, rows, bias=True))),
        ),
        loss=loss_cost(shape, plan, rows),
        always=tokens * width * precision.residual,
    )


def _transform(shape: Shape, plan: Plan, rows: int) -> Part:
    """Matrix, activation and norm before the output layer."""
    precision, width = plan.precision, shape.width
    return Part(
        name="transform",
        matrices=width * width,
        vectors=3 * width,
        kept=rows * width * (precision.compute + precision.residual),
        kept_for_weights=rows * width * precision.compute,
        working=rows * width * precision.residual,
    )
