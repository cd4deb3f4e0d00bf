"""Alternative ways to run a training: compared side by side, as a table, and in advice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stayfinite.inspection.memory.estimating import MIB, Estimate, estimate
from stayfinite.inspection.memory.plan import PRECISIONS, BaseChoice, Plan, Shape
from stayfinite.inspection.notes import Table
from stayfinite.rules.cards import Card, card_asked_for
from stayfinite.rules.model_families import SUREST, family_of

CONTEXT = 750 * MIB  # GPU memory of the driver and CUDA libraries, which torch does not count

SLACK = 0.1  # share lost to fragmentation in torch's allocator

MOST = 1 << 20  # upper limit of the search


def needed(peak: int) -> int:
    """GPU memory needed for a step with this peak."""
    return int(peak * (1 + SLACK)) + CONTEXT


def largest_batch(shape: Shape, plan: Plan, card: int) -> int:
    """Rows that fit into ``card`` bytes; 0 if not even one does."""

    def fits(batch: int) -> bool:
        return needed(estimate(shape, replace(plan, batch=batch)).peak) <= card

    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= MOST and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One plan, its memory, and how it fits the GPU."""

    title: str
    plan: Plan
    estimate: Estimate
    largest: int | None = None
    """Largest batch on the GPU, if one is named."""
    share: float | None = None
    """Memory of the step as a share of the GPU's."""
    runs: bool = True
    """Whether the GPU supports this precision."""

    @property
    def name(self) -> str:
        """The title, with a note on checkpointing."""
        return f"{self.title}, checkpointing" if self.plan.checkpointing else self.title

    @property
    def fits(self) -> bool:
        return self.share is not None and self.share <= 1.0


def column(shape: Shape, plan: Plan, title: str, card: Card | None) -> Column:
    """Estimate one plan."""
    alone = Column(title=title, plan=plan, estimate=estimate(shape, plan))
    if card is None:
        return alone
    held = int(card.memory_gib * GIB)
    runs = card.bf16 or plan.precision.name not in ("bf16", "pure-bf16")
    share = needed(alone.estimate.peak) / held
    return replace(alone, largest=largest_batch(shape, plan, held), share=share, runs=runs)


def columns(
    shape: Shape, plan: Plan, card: Card | None, precision: str | None, checkpointing: bool | None
) -> list[Column]:
    """All precisions with and without checkpointing, or the requested ones."""
    names = [precision] if precision else list(PRECISIONS)
    if not precision:
        # Both half precisions take the same memory: show the one that runs.
        names.remove("bf16" if card is not None and not card.bf16 else "fp16")
    found = []
    for again in (False, True) if checkpointing is None else (checkpointing,):
        for name in names:
            kind = PRECISIONS[name]
            both = precision is None and kind.autocast and (card is None or card.bf16)
            title = "bf16 or fp16 autocast" if both else kind.title
            found.append(column(shape, replace(plan, precision=kind, checkpointing=again), title, card))
    return found


USUAL = ("T4", "RTX 4090", "A100", "H100")  # GPUs to show if none is named


def size(count: float) -> str:
    """Format bytes for people."""
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def table_of(shape: Shape, found: Sequence[Column], card: Card | None) -> Table:
    """One row per memory item, one column per way of running."""
    each = [column.estimate for column in found]
    rows = [
        ("weights", *(size(one.weights) for one in each)),
        ("gradients", *(size(one.gradients) for one in each)),
        (f"optimizer ({found[0].plan.optimizer})", *(size(one.optimizer) for one in each)),
        ("activations", *(size(one.activations) for one in each)),
        ("logits and loss", *(size(one.logits) for one in each)),
        ("casts, workspace", *(size(one.copies + one.workspace) for one in each)),
        ("peak", *(size(one.peak) for one in each)),
        ("reached at", *(one.moment for one in each)),
        ("needed on a GPU", *(size(needed(one.peak)) for one in each)),
    ]
    if card is not None:
        rows.append((f"on {card.name}, {card.memory_gib:g} GiB", *(_standing(column) for column in found)))
        batches = (str(each.largest or "none") if each.runs else "-" for each in found)
        rows.append(("largest batch", *batches))
    else:
        for name in USUAL:
            usual = card_asked_for(name)
            most = (_most(shape, column.plan, usual) for column in found)
            rows.append((f"batch on {usual.name}, {usual.memory_gib:g} GiB", *most))
    plan = found[0].plan
    rows_of = f"batch {plan.batch}" + (f" x {plan.seq} tokens" if shape.vocabulary else "")
    if shape.encoder_decoder:
        rows_of += f", {plan.target_seq} of target"
    return Table(
        title=f"{shape.name}, {rows_of}, {'with' if plan.checkpointing else 'without'} checkpointing",
        columns=("", *(column.title for column in found)),
        rows=tuple(rows),
    )


def _most(shape: Shape, plan: Plan, card: Card) -> str:
    """The largest batch on a GPU that was not named; bf16 stands for fp16 if the GPU has no bf16."""
    plan = replace(plan, flash=card.flash_attention_2)
    if plan.precision.name == "pure-bf16" and not card.bf16:
        return "-"
    return str(largest_batch(shape, plan, int(card.memory_gib * GIB)) or "none")


def _standing(column: Column) -> str:
    if not column.runs:
        return "not in hardware"
    return f"{'fits' if column.fits else 'too much'}, {100 * (column.share or 0):.0f} %"


RANK = 16  # of the suggested adapters
_OVERFLOWS = ". This model family overflows in fp16, though (SF102): prefer a GPU with bf16"


def advice(shape: Shape, found: Sequence[Column], card: Card) -> str:
    """One sentence: how it fits, or the smallest change that makes it fit."""
    planned = found[0].plan.batch
    overflows = leaves_half(shape)
    if not any(each.runs for each in found):
        return f"{card.name} has no bf16: use --precision {'fp32' if overflows else 'fp16'}"
    # bf16 weights lose small updates: the last choice, unless they are frozen.
    ranked = sorted(found, key=lambda each: (each.plan.precision.name == "pure-bf16") and not each.plan.lora)
    fitting = [each for each in ranked if each.fits and each.runs]
    fitting = [each for each in fitting if not _risky(each, overflows)] or fitting
    if fitting:
        best = max(fitting[:2], key=lambda each: each.plan.precision.autocast)
        text = f"{_named(best)} fits with batch {planned} on {card.name}; largest batch: {best.largest}"
        more = [each for each in fitting if (each.largest or 0) > (best.largest or 0)]
        most = max(more, key=lambda each: each.largest or 0, default=None)
        text += f" as is; {most.largest} in {_named(most)}" if most is not None else ""
        if best.plan.precision.name == "pure-bf16" and not best.plan.lora:
            text += f". Weights in bf16 lose small updates: prefer adapters (--lora {RANK})"
        return text + (_OVERFLOWS if _risky(best, overflows) else "")
    smaller = [each for each in ranked if each.runs and each.largest]
    smaller = [each for each in smaller if not _risky(each, overflows)] or smaller
    if smaller:
        best = max(smaller, key=lambda each: (each.plan.precision.name != "pure-bf16", each.largest or 0))
        steps = math.ceil(planned / (best.largest or 1))
        return (
            f"batch {best.largest} fits on {card.name} in {_named(best)}: use it with "
            f"gradient_accumulation_steps={steps}{_OVERFLOWS if _risky(best, overflows) else ''}"
        )
    return _rescue(shape, found[0].plan, card)


def leaves_half(shape: Shape) -> bool:
    """Whether models of this kind overflow in fp16, whatever is trained."""
    return shape.family == "t5" or family_of(shape.name) in SUREST


def _risky(each: Column, overflows: bool) -> bool:
    return overflows and each.plan.precision.name == "fp16"


def _rescue(shape: Shape, plan: Plan, card: Card) -> str:
    """The smallest change that makes a single row fit."""
    half = PRECISIONS["bf16" if card.bf16 else "fp32" if leaves_half(shape) else "fp16"]
    frozen = PRECISIONS["pure-bf16"] if card.bf16 else half
    lora = plan.lora or RANK
    thrift = replace(plan, batch=1, checkpointing=True)
    cheap = replace(thrift, precision=half)
    attempts = [(f"--optimizer {name}", replace(cheap, optimizer=name)) for name in ("adamw-8bit", "adafactor")]
    attempts.append((f"adapters (--lora {lora})", replace(thrift, precision=frozen, lora=lora)))
    bases: tuple[BaseChoice, ...] = ("8bit", "4bit")
    for base in bases:
        words = f"adapters on {base.replace('bit', '-bit')} weights (--lora {lora} --base {base})"
        attempts.append((words, replace(cheap, lora=lora, base=base)))
    for what, attempt in attempts:
        if plan.lora and not attempt.lora:
            continue
        tried = column(shape, attempt, what, card)
        if tried.fits:
            way = f"train with {what} in {attempt.precision.title} with checkpointing"
            return f"{way}: up to batch {tried.largest} fits on {card.name}; as asked, not even one row does"
    shorter = column(shape, replace(attempts[-1][1], seq=128, target_seq=128), "", card)
    if plan.seq > 128 and shorter.fits and shape.vocabulary:
        return f"train on 128 tokens with {attempts[-1][0]}: nothing fits on {card.name} at {plan.seq} tokens"
    return f"shard it (FSDP, ZeRO 3) or use a larger GPU: this model does not fit on one {card.name}"


def _named(each: Column) -> str:
    again = " with checkpointing" if each.plan.checkpointing else ""
    return f"{each.plan.precision.title}{again}"
