"""Alternative ways to run a training, compared side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stayfinite.inspection.memory.estimating import MIB, Estimate, estimate
from stayfinite.inspection.memory.plan import PRECISIONS, Plan
from stayfinite.inspection.memory.shape import Shape
from stayfinite.rules.cards import Card

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


def runs_on(card: Card, plan: Plan) -> bool:
    """Whether the GPU supports the plan's precision."""
    return card.bf16 or plan.precision.name not in ("bf16", "pure-bf16")


def column(shape: Shape, plan: Plan, title: str, card: Card | None) -> Column:
    """Estimate one plan."""
    found = estimate(shape, plan)
    if card is None:
        return Column(title=title, plan=plan, estimate=found)
    held = int(card.memory_gib * GIB)
    return Column(
        title=title,
        plan=plan,
        estimate=found,
        largest=largest_batch(shape, plan, held),
        share=needed(found.peak) / held,
        runs=runs_on(card, plan),
    )


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
