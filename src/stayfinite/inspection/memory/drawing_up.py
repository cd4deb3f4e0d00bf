"""The estimates as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stayfinite.inspection.memory.columns import GIB, Column, largest_batch, needed
from stayfinite.inspection.memory.estimating import MIB
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape
from stayfinite.inspection.notes import Table
from stayfinite.rules.cards import Card, card_asked_for

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
