"""Find where bad values of a loss or gradient began, by slicing backward through the operators.

Healthy models create infinities all the time: masks before a softmax, a log of 0 behind a `where`. So the first
infinity of a step is not the origin. An origin is an operator whose inputs were finite, or infinite on purpose, and
whose bad output reaches the loss or a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from stayfinite.autopsy.tracing.events import CloseLook, Event, Health
from stayfinite.autopsy.tracing.tracer import Tracer, is_constant_infinity

MASKED = ("softmax", "scaled_dot_product", "logsumexp", "attention", "max", "min", "sort", "topk", "where", "exp")
"""Operators that get infinities on purpose."""

LOSSES = ("nll_loss_forward", "nll_loss2d_forward", "gather", "binary_cross_entropy", "mean", "sum", "index")
"""Operators that compute a loss from logits or probabilities."""

UNNAMED = "a tensor"
"""Name of a bad leaf that is neither the model's nor the batch's."""

CHOOSERS = ("aten.where", "aten.masked_fill", "aten.nan_to_num", "aten.masked_scatter", "aten.clamp")
"""Operators that discard values."""

CHAIN = 12
"""Longest recorded path from the origin to the loss."""


@dataclass(slots=True, kw_only=True)
class Origin:
    """The operator or leaf at which bad values began."""

    event: Event | None
    """The operator; None if a leaf was already bad."""
    forward: Event | None
    """For a backward operator, the forward operator whose derivative it computes."""
    leaf: str
    """The parameter, buffer or batch item that was already bad; empty if an operator is the origin."""
    tensor: Tensor | None = None
    """The bad leaf itself."""
    reader: Event | None = None
    """First operator that read a bad leaf."""
    mask: Event | None = None
    """Where an infinity was written on purpose that should not have reached the loss."""
    chain: list[str] = field(default_factory=list)
    """Path to the loss or gradient, operator by operator."""

    @property
    def where(self) -> Event | None:
        """The operator to look at."""
        return self.event or self.reader

    @property
    def look(self) -> CloseLook | None:
        """Inputs and output of the operator, if it was looked at."""
        return None if self.event is None else self.event.close_look


def find_origins(tracer: Tracer, sinks: Iterable[int]) -> list[Origin]:
    """Origins of the bad values in these events, earliest first."""
    toward: dict[int, int] = {}
    births: dict[int, Origin] = {}
    todo = [sink for sink in sinks if sink >= 0]
    seen = set(todo)
    while todo:
        event = tracer.events[todo.pop()]
        sources = _bad_inputs(tracer, event)
        if event.phase == "backward":
            # A value that a `where` discarded in forward, and backward uses again, is this operator's fault.
            sources = [n for n in sources if not _thrown_away(tracer, n)]
        if not sources and event.after > Health.FINITE:
            births[event.number] = Origin(event=event, forward=_forward(tracer, event), leaf="")
        for source in sources:
            if source < 0:
                name = tracer.leaves.get(source, "")
                leaf = Origin(
                    event=None, forward=None, leaf=name or UNNAMED, tensor=tracer.tensor_of(source), reader=event
                )
                births.setdefault(source, leaf)
                toward.setdefault(source, event.number)
            elif source not in seen:
                seen.add(source)
                toward[source] = event.number
                todo.append(source)
    for number, origin in births.items():
        origin.chain = _chain(tracer, number, toward)
        _move_to_reader(tracer, origin, number, toward)
    return [births[number] for number in sorted(births, key=lambda number: _order(births[number]))]


def _bad_inputs(tracer: Tracer, event: Event) -> list[int]:
    """Inputs that explain a bad output; empty if the operator itself is the cause."""
    worst = max(event.before, default=Health.FINITE)
    if event.after is Health.FINITE or worst is Health.FINITE:
        return []
    nan = [n for n, health in zip(event.inputs, event.before, strict=True) if health is Health.NAN]
    if nan:
        return nan
    infinite = [n for n, health in zip(event.inputs, event.before, strict=True) if health is Health.INFINITE]
    if event.after is Health.INFINITE:
        return infinite
    # NaN from infinities: if they are intended, as in a mask, the operator that turns them into NaN is the cause. An
    # infinite leaf is a mask to a softmax, and bad data to any other operator.
    masked = any(word in event.operator for word in MASKED)
    return [n for n in infinite if not _on_purpose(tracer, n, leaves=masked)]


def _on_purpose(tracer: Tracer, number: int, *, leaves: bool) -> bool:
    """Whether an infinity was written as a constant, as in masks, rather than computed from finite numbers."""
    todo, seen = [number], {number}
    while todo:
        current = todo.pop()
        if current < 0:
            if not leaves:
                return False
            continue
        event = tracer.events[current]
        if is_constant_infinity(event):
            continue
        carriers = [n for n, health in zip(event.inputs, event.before, strict=True) if health is Health.INFINITE]
        if not carriers:
            return False
        todo += [n for n in carriers if n not in seen]
        seen.update(carriers)
    return True


def _thrown_away(tracer: Tracer, number: int) -> bool:
    """Whether the bad result of a forward operator only reached operators that discard values."""
    if number < 0 or tracer.events[number].phase != "forward":
        return False
    carriers, chosen = {number}, False
    for event in tracer.events[number + 1 :]:
        if event.phase != "forward" or not carriers.intersection(event.inputs):
            continue
        if event.after > Health.FINITE:
            carriers.add(event.number)
        elif event.operator.startswith(CHOOSERS):
            chosen = True
        elif event.dtype != "bool":
            return False
    return chosen


def _forward(tracer: Tracer, event: Event) -> Event | None:
    return tracer.forward_of(event) if event.phase == "backward" else None


def _order(origin: Origin) -> int:
    # A bad leaf comes before every operator.
    return -1 if origin.event is None else origin.event.number


def _move_to_reader(tracer: Tracer, origin: Origin, number: int, toward: dict[int, int]) -> None:
    """Move the origin from an intended infinity to the operator that makes a loss of it."""
    if origin.event is None or origin.event.after is Health.NAN or not is_constant_infinity(origin.event):
        return
    while number in toward:
        number = toward[number]
        event = tracer.events[number]
        if event.operator.rpartition(".")[2] in LOSSES:
            origin.mask, origin.event, origin.forward = origin.event, event, _forward(tracer, event)
            return


def _chain(tracer: Tracer, number: int, toward: dict[int, int]) -> list[str]:
    steps: list[str] = []
    while number in toward and len(toward) >= len(steps):
        number = toward[number]
        event = tracer.events[number]
        words = f"{event.operator} in {event.module or 'the loss'} ({event.phase})"
        if not steps or steps[-1] != words:
            steps.append(words)
    return steps if len(steps) <= CHAIN else [*steps[: CHAIN - 1], "...", steps[-1]]


def custom_function(origin: Origin | None) -> str:
    """Custom autograd function whose backward contains an origin; empty if none."""
    event = None if origin is None else origin.event
    if event is None or event.phase != "backward" or not event.node.endswith("Backward"):
        return ""  # torch's own nodes end in a digit
    return event.node.removesuffix("Backward")


def batch_rows(shape: Sequence[int], rows: Sequence[int], batch_size: int | None) -> list[int]:
    """Batch rows for indices along a tensor's first dimension; empty if unknown."""
    if not batch_size or not shape or not rows or shape[0] % batch_size:
        return []
    return sorted({row // (shape[0] // batch_size) for row in rows})
