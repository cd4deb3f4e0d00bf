"""The parts of each model family in execution order, with their weights and kept memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stayfinite.inspection.memory.plan import Family, Plan, Precision, Shape

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the forward pass; the backward pass runs them in reverse. Sizes in bytes."""

    name: str
    matrices: int = 0
    """Elements of matrix weights, which autocast casts."""
    vectors: int = 0
    """Elements of other weights: norms, biases, tables."""
    table: int = 0
    """Elements of an embedding, whose gradient is dense."""
    shares_table: bool = False
    """The table is the output matrix: counted there, and its second gradient is added to the first."""
    kept: int = 0
    """Always kept for the backward pass."""
    kept_for_weights: int = 0
    """Kept only for gradients of this part's weights."""
    working: int = 0
    """Temporary, in this part's backward pass."""
    adapted: Sequence[tuple[int, int]] = ()
    """Matrices with adapters, as (inputs, outputs)."""
    adapted_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Parts recomputed together under gradient checkpointing."""

    parts: Sequence[Part]
    times: int = 1
    """Number of repetitions."""
    entry: int = 0
    """What checkpointing keeps: the input. 0 if never checkpointed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A model as a list of segments, and its loss."""

    segments: Sequence[Segment]
    loss: LossCost
    always: int = 0
    """Kept for the whole step: position biases, masks."""

    def parts(self) -> list[Part]:
        """All parts, with repetitions."""
        return [part for segment in self.segments for _ in range(segment.times) for part in segment.parts]


def norm_weights(shape: Shape) -> int:
    """LayerNorm has a bias, RMSNorm does not."""
    return shape.width * (1 if shape.family in ("t5", "llama") else 2)


def attention_part(
    shape: Shape, plan: Plan, *, queries: int, keys: int, role: Role = "self", fused: bool = False
) -> Part:
    """Norm, projections, attention, output projection, dropout.

    ``queries`` and ``keys`` are tokens per row and per attended row; ``fused``: one matrix for queries, keys and
    values.
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
        vectors=biases + norm_weights(shape) + 2 * shape.head_width * shape.head_norms,
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


def bert_layout(shape: Shape, plan: Plan) -> Layout:
    """BERT, RoBERTa, DistilBERT: one stack, post-norm, learned positions, a masked-LM head or a classifier."""
    precision, width, tokens = plan.precision, shape.width, plan.tokens
    vectors = (shape.positions + shape.types + 2) * width
    kept = precision.residual + dropout_mask(shape.dropout)
    table = table_part(shape, plan, tokens, vectors=vectors, kept=kept)
    rows = tokens if shape.per_token else plan.batch
    head: tuple[Part, ...] = ()
    if not shape.classes:
        head = (_transform(shape, plan, rows),)
    elif shape.pooler:
        head = (Part(name="pooler", matrices=width * width, vectors=width, kept=rows * width * precision.compute),)
    last = (*head, output_part(shape, plan, rows, bias=True))
    return _one_stack(shape, plan, table, _layer(shape, plan), last, rows, tokens * width * precision.residual)


def _one_stack(
    shape: Shape, plan: Plan, first: Part, layer: Sequence[Part], last: Sequence[Part], rows: int, always: int = 0
) -> Layout:
    """What comes before the layers of a single stack, one of them, and what comes after; ``rows`` have a loss."""
    entry = plan.tokens * shape.width * plan.precision.residual
    block = Segment(parts=layer, times=shape.layers, entry=entry)
    segments = (Segment(parts=(first,)), block, Segment(parts=last))
    return Layout(segments=segments, loss=loss_cost(shape, plan, rows), always=always)


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
        attention_part(shape, plan, queries=plan.seq, keys=plan.seq, fused=fused),
        feed_forward_part(shape, plan, plan.tokens),
    )


def gpt2_layout(shape: Shape, plan: Plan) -> Layout:
    """GPT-2: one causal stack, fused query-key-value matrix, learned positions, tied embeddings."""
    vectors, kept = shape.positions * shape.width, dropout_mask(shape.dropout)
    table = table_part(shape, plan, plan.tokens, vectors=vectors, kept=kept)
    return _causal_layout(shape, plan, table, _layer(shape, plan, fused=True))


def llama_layout(shape: Shape, plan: Plan) -> Layout:
    """LLaMA, Mistral, Qwen, SmolLM: one causal stack, gated, grouped queries, rotary positions."""
    always = 2 * plan.seq * shape.head_width * plan.precision.residual
    return _causal_layout(shape, plan, table_part(shape, plan, plan.tokens), _layer(shape, plan), always)


def _causal_layout(shape: Shape, plan: Plan, table: Part, layer: tuple[Part, ...], always: int = 0) -> Layout:
    last = (final_norm_part(shape, plan, plan.tokens), output_part(shape, plan, plan.tokens))
    # A classifier computes logits for every token and then picks one.
    rows = plan.tokens if shape.per_token else plan.batch
    return _one_stack(shape, plan, table, layer, last, rows, always)


def t5_layout(shape: Shape, plan: Plan) -> Layout:
    """T5, mT5, ByT5, FLAN-T5: encoder and decoder, relative positions, dropout everywhere."""
    residual = plan.precision.residual
    tokens, targets = plan.tokens, plan.target_tokens
    mask = dropout_mask(shape.dropout)
    table = table_part(shape, plan, tokens, shared=True, kept=mask)
    target_table = table_part(shape, plan, targets, shared=True, kept=mask)
    decoder = (
        attention_part(shape, plan, queries=plan.target_seq, keys=plan.target_seq),
        attention_part(shape, plan, queries=plan.target_seq, keys=plan.seq, role="cross"),
        feed_forward_part(shape, plan, targets),
    )
    # Biases of the three kinds of attention, and the encoder's output, which every decoder layer reads.
    biases = shape.heads * (plan.seq**2 + plan.target_seq**2 + plan.seq * plan.target_seq) * residual
    first_tables = 2 * shape.buckets * shape.heads
    last = output_part(shape, plan, targets)
    relative = Part(name="relative positions", vectors=first_tables)
    return Layout(
        segments=(
            Segment(parts=(table, relative)),
            Segment(parts=_layer(shape, plan), times=shape.layers, entry=tokens * shape.width * residual),
            Segment(parts=(final_norm_part(shape, plan, tokens, shape.dropout),)),
            Segment(parts=(target_table,)),
            Segment(parts=decoder, times=shape.decoder_layers, entry=targets * shape.width * residual),
            Segment(parts=(final_norm_part(shape, plan, targets, shape.dropout), last)),
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
    last = (final_norm_part(shape, plan, plan.tokens), output_part(shape, plan, plan.batch, bias=True))
    return _one_stack(shape, plan, patches, _layer(shape, plan), last, plan.batch, pixels * precision.stored)


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
