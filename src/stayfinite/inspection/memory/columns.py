"""The ways of running a training that are set side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stayfinite.inspection.memory.estimating import Estimate, estimate
from stayfinite.inspection.memory.largest_batch import largest_batch, needed
from stayfinite.inspection.memory.plan import PRECISIONS, Plan
from stayfinite.inspection.memory.shape import Shape
from stayfinite.rules.cards import Card

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One plan, what it takes, and how it goes with the card."""

    title: str
    plan: Plan
    estimate: Estimate
    largest: int | None = None
    """The largest batch on the card, where one is named."""
    share: float | None = None
    """What the step needs, as a share of the card."""
    runs: bool = True
    """Whether the card computes in this precision."""

    @property
    def name(self) -> str:
        """The title, and whether there is checkpointing."""
        return f"{self.title}, checkpointing" if self.plan.checkpointing else self.title

    @property
    def fits(self) -> bool:
        """On the card that was named."""
        return self.share is not None and self.share <= 1.0


def runs_on(card: Card, plan: Plan) -> bool:
    """Whether the card computes in the plan's precision."""
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
    """All precisions without and with checkpointing, or those that were asked for."""
    names = [precision] if precision else list(PRECISIONS)
    if not precision:
        # The two half precisions take the same memory: one column for both, in the name of the one that runs.
        names.remove("bf16" if card is not None and not card.bf16 else "fp16")
    found = []
    for again in (False, True) if checkpointing is None else (checkpointing,):
        for name in names:
            kind = PRECISIONS[name]
            both = precision is None and kind.autocast and (card is None or card.bf16)
            title = "bf16 or fp16 autocast" if both else kind.title
            found.append(column(shape, replace(plan, precision=kind, checkpointing=again), title, card))
    return found
