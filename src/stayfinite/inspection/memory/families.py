"""The parts, weights and kept memory of each model family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stayfinite.inspection.memory import pieces
from stayfinite.inspection.memory.keeping import dropout_mask, loss_cost
from stayfinite.inspection.memory.parts import Layout, Part, Segment
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Family, Shape


def bert_layout(shape: Shape, plan: Plan) -> Layout:
    """BERT, RoBERTa, DistilBERT: one stack, post-norm, learned positions, a masked-LM head or a classifier."""
    precision, width, tokens = plan.precision, shape.width, plan.tokens
    vectors = (shape.positions + shape.types + 2) * width
    kept = precision.residual + dropout_mask(shape.dropout)
    table = pieces.table_part(shape, plan, tokens, vectors=vectors, kept=kept)
    block = _layer(shape, plan)
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


def _layer(shape: Shape, plan: Plan, *, fused: bool = False) -> tuple[Part, ...]:
    """Self-attention and feed-forward of one layer."""
    return (
        pieces.attention_part(shape, plan, queries=plan.seq, keys=plan.seq, fused=fused),
        pieces.feed_forward_part(shape, plan, plan.tokens),
    )


def gpt2_layout(shape: Shape, plan: Plan) -> Layout:
    """GPT-2: one causal stack, fused query-key-value matrix, learned positions, tied embeddings."""
    vectors, kept = shape.positions * shape.width, dropout_mask(shape.dropout)
    table = pieces.table_part(shape, plan, plan.tokens, vectors=vectors, kept=kept)
    return _causal_layout(shape, plan, table, _layer(shape, plan, fused=True))


def llama_layout(shape: Shape, plan: Plan) -> Layout:
    """LLaMA, Mistral, Qwen, SmolLM: one causal stack, gated, grouped queries, rotary positions."""
    layout = _causal_layout(shape, plan, pieces.table_part(shape, plan, plan.tokens), _layer(shape, plan))
    return replace(layout, always=2 * plan.seq * shape.head_width * plan.precision.residual)


def _causal_layout(shape: Shape, plan: Plan, table: Part, block: tuple[Part, ...]) -> Layout:
    tokens = plan.tokens
    # A classifier computes logits for every token and then picks one.
    rows = tokens if shape.per_token else plan.batch
    return Layout(
        segments=(
            Segment(parts=(table,)),
            Segment(parts=block, times=shape.layers, entry=tokens * shape.width * plan.precision.residual),
            Segment(parts=(pieces.final_norm_part(shape, plan, tokens), pieces.output_part(shape, plan, tokens))),
        ),
        loss=loss_cost(shape, plan, rows),
    )


def t5_layout(shape: Shape, plan: Plan) -> Layout:
    """T5, mT5, ByT5, FLAN-T5: encoder and decoder, relative positions, dropout everywhere."""
    residual = plan.precision.residual
    tokens, targets = plan.tokens, plan.target_tokens
    mask = dropout_mask(shape.dropout)
    table = pieces.table_part(shape, plan, tokens, shared=True, kept=mask)
    target_table = pieces.table_part(shape, plan, targets, shared=True, kept=mask)
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
            Segment(parts=_layer(shape, plan), times=shape.layers, entry=tokens * shape.width * residual),
            Segment(parts=(pieces.final_norm_part(shape, plan, tokens, shape.dropout),)),
            Segment(parts=(target_table,)),
            Segment(parts=decoder, times=shape.decoder_layers, entry=targets * shape.width * residual),
            Segment(parts=(pieces.final_norm_part(shape, plan, targets, shape.dropout), last)),
        ),
        loss=loss_cost(shape, plan, targets),
        always=biases + tokens * shape.width * residual,
    )


def vit_layout(shape: Shape, plan: Plan) -> Layout:
    """ViT and DeiT: image patches as tokens, so `plan.seq` is ignored; pre-norm, a classifier on the first token."""
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
    return Layout(
        segments=(
            Segment(parts=(patches,)),
            Segment(parts=_layer(shape, plan), times=shape.layers, entry=plan.tokens * width * precision.residual),
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


_LAYOUTS: dict[Family, Callable[[Shape, Plan], Layout]] = {
    "t5": t5_layout,
    "bert": bert_layout,
    "llama": llama_layout,
    "gpt2": gpt2_layout,
    "vit": vit_layout,
}


def layout_of(shape: Shape, plan: Plan) -> Layout:
    """The parts of a model in execution order."""
    return _LAYOUTS[shape.family](shape, plan)
