"""What weights stored in 16 bits lose of each update, and what fp32 copies, Kahan sums and stochastic rounding save.

All ways take the same steps: the same start, the same batches, the same optimizer with its moments in fp32. They
differ in one thing, how ``weight + update`` is stored.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from stayfinite.errors import UsageError
from stayfinite.inspection.bench.loss_of import forward_for
from stayfinite.inspection.bench.update import rounded_away
from stayfinite.precision.formats import BF16, FP16, Format, format_named
from stayfinite.state.rng import capture_rng, restore_rng

Factory = Callable[[list[nn.Parameter]], Optimizer]
COPY = "fp32 copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One way of storing weights, over all steps."""

    way: str
    """`fp32 copy`, `Kahan sum`, `stochastic rounding`, `nearest` (no copy, what a plain optimizer does)."""
    bytes: int
    """For each weight: itself and what is kept beside it."""
    rounded_away: float
    """Share of weights with a gradient that a step left as they were, mean over the steps."""
    norm_lost: float
    """Norm of what a step did not store, over the norm of its update, mean over the steps."""
    cosine: float
    """Of all updates together, with those of fp32."""
    error: float
    """Norm of the difference from fp32's, over the norm of fp32's."""
    loss: float
    """Mean over the batches, at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostUpdates:
    """The comparison."""

    format: str
    steps: int
    fp32_loss: float
    """At the end, with everything in fp32."""
    ways: Sequence[Kept]

    def way(self, name: str) -> Kept:
        """One of them."""
        return next(each for each in self.ways if each.way == name)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def lost_updates(
    model: nn.Module,
    optimizer: Optimizer | Factory,
    batches: Sequence[Any],
    forward: Callable[[Any], Any] | None = None,
    *,
    steps: int | None = None,
    format: str = "bf16",
) -> LostUpdates:
    """Train a few steps in each way and compare. Model and random numbers are as before when this returns.

    Arguments:
        model: its weights in any precision.
        optimizer: its kind, groups and settings are used, from a fresh state; or ``factory(parameters)`` makes one.
        batches: taken in turn.
        forward: ``forward(batch) -> loss``; for mappings ``model(**batch)`` when left out.
        steps: as many as there are batches when left out.
        format: what weights are stored in: `bf16` or `fp16`.

    Raises:
        UsageError: no batches, no parameter to train, or another format.
    """
    stored = format_named(format)
    if stored not in (BF16, FP16):
        raise UsageError(f"format is {format!r}", fix="'bf16' or 'fp16'; wider weights lose almost nothing")
    trained = [p for p in model.parameters() if p.requires_grad and p.is_floating_point()]
    if not batches or not trained:
        missing = "no batch to step with" if not batches else "the model has no trainable parameters"
        raise UsageError(missing, fix="lost_updates(model, optimizer, [batch, ...])")
    run = forward_for(model, batches[0], forward)
    turns = [batches[step % len(batches)] for step in range(len(batches) if steps is None else steps)]
    with _as_before(model):
        start = [p.detach().float().clone() for p in trained]
        exact = _Course(model, trained, optimizer, run, turns, None)
        final, fp32_loss, _ = exact.take(start, _in_full, batches)
        moved = [end - begin for end, begin in zip(final, start, strict=True)]
        ways = []
        for name, (extra, keep) in WAYS.items():
            course = _Course(model, trained, optimizer, run, turns, stored)
            # Only an fp32 copy knows more of the start than the format holds.
            begin = start if name == COPY else [stored.rounded(each) for each in start]
            reached, loss, shares = course.take(begin, keep(stored), batches)
            own = [end - first for end, first in zip(reached, begin, strict=True)]
            away, lost = (sum(each) / len(shares) for each in zip(*shares, strict=True))
            ways.append(
                Kept(
                    way=name,
                    bytes=stored.bytes + extra,
                    rounded_away=away,
                    norm_lost=lost,
                    cosine=_dot(own, moved) / max(_norm(own) * _norm(moved), 1e-30),
                    error=_norm([a - b for a, b in zip(own, moved, strict=True)]) / max(_norm(moved), 1e-30),
                    loss=loss,
                )
            )
    return LostUpdates(format=stored.name, steps=len(turns), fp32_loss=fp32_loss, ways=ways)


Keep = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Remembered weight, update -> weight to compute with, weight that is remembered."""


def _in_full(weight: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
    return weight + update, weight + update


def _nearest(stored: Format) -> Keep:
    def keep(weight: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        new = stored.rounded(weight + update)
        return new, new

    return keep


def _with_copy(stored: Format) -> Keep:
    def keep(weight: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return stored.rounded(weight + update), weight + update

    return keep


def _with_kahan(stored: Format) -> Keep:
    def keep(weight: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        # What is remembered is the stored weight and, in the same format, what did not fit into it.
        total = weight + update
        new = stored.rounded(total)
        return new, new + stored.rounded(total - new)

    return keep


def _stochastic(stored: Format) -> Keep:
    generators: dict[torch.device, torch.Generator] = {}

    def keep(weight: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        total = weight + update
        if total.device not in generators:
            generators[total.device] = torch.Generator(total.device).manual_seed(0)
        chance = torch.rand(total.shape, generator=generators[total.device], device=total.device)
        new = rounded_by_chance(total, chance, stored)
        return new, new

    return keep


def rounded_by_chance(values: Tensor, chance: Tensor, stored: Format) -> Tensor:
    """To one of the two neighbors in the format, the nearer the likelier, so that the mean is the value."""
    exponent = torch.frexp(values).exponent - 1
    step = torch.ldexp(torch.full_like(values, stored.epsilon), exponent).clamp_min(stored.smallest_subnormal)
    below = (values / step).floor()
    return stored.rounded((below + (chance < values / step - below).to(values.dtype)) * step)


WAYS: Mapping[str, tuple[int, Callable[[Format], Keep]]] = {
    "nearest": (0, _nearest),
    "stochastic rounding": (0, _stochastic),
    "Kahan sum": (2, _with_kahan),
    COPY: (4, _with_copy),
}
"""Each way, with the bytes that it keeps beside a weight."""


class _Course:
    """One training over the turns; weights are fp32 tensors that hold what the format can hold."""

    def __init__(
        self,
        model: nn.Module,
        trained: list[nn.Parameter],
        optimizer: Optimizer | Factory,
        run: Callable[[Any], Any],
        turns: Sequence[Any],
        stored: Format | None,
    ) -> None:
        self._model, self._trained, self._run, self._turns = model, trained, run, turns
        self._dtype = torch.float32 if stored is None else stored.dtype
        self._stored = stored
        self._shadows = [nn.Parameter(torch.empty_like(p, dtype=torch.float32)) for p in trained]
        shadow_of = {id(p): shadow for p, shadow in zip(trained, self._shadows, strict=True)}
        self._optimizer = _another(optimizer, shadow_of, self._shadows)

    def take(
        self, start: list[Tensor], keep: Keep, batches: Sequence[Any]
    ) -> tuple[list[Tensor], float, list[tuple[float, float]]]:
        """Where the remembered weights end, the loss there, and each step's share rounded away, by count and norm."""
        generators = capture_rng()
        self._model.to(self._dtype)
        remembered = [each.clone() for each in start]
        self._load(start)
        shares = [self._step(batch, remembered, keep) for batch in self._turns]
        with torch.no_grad():
            losses = [float(self._run(tree_map(self._cast, batch))) for batch in batches]
        restore_rng(generators)
        return remembered, sum(losses) / len(losses), shares

    def _step(self, batch: Any, remembered: list[Tensor], keep: Keep) -> tuple[float, float]:
        for p in self._trained:
            p.grad = None
        self._run(tree_map(self._cast, batch)).backward()
        for p, shadow, weight in zip(self._trained, self._shadows, remembered, strict=True):
            shadow.data.copy_(weight)
            shadow.grad = None if p.grad is None else p.grad.detach().float()
        self._optimizer.step()
        alive = away = 0
        whole = lost = 0.0
        for index, (p, shadow) in enumerate(zip(self._trained, self._shadows, strict=True)):
            if p.grad is None:
                continue
            update = shadow.detach() - remembered[index]
            used, kept = keep(remembered[index], update)
            gone, counted = rounded_away(remembered[index], kept, p.grad)
            away, alive = away + gone, alive + counted
            lost += float((remembered[index] + update - kept).double().square().sum())
            whole += float(update.double().square().sum())
            remembered[index] = kept
            p.data.copy_(used)
        return (away / alive if alive else 0.0), (math.sqrt(lost / whole) if whole else 0.0)

    def _load(self, values: list[Tensor]) -> None:
        for p, value in zip(self._trained, values, strict=True):
            p.data.copy_(value)

    def _cast(self, part: Any) -> Any:
        return part.to(self._dtype) if isinstance(part, Tensor) and part.is_floating_point() else part


def _another(
    optimizer: Optimizer | Factory, shadow_of: Mapping[int, nn.Parameter], shadows: list[nn.Parameter]
) -> Optimizer:
    """A fresh optimizer of the same kind and settings over the shadows."""
    if not isinstance(optimizer, Optimizer):
        return optimizer(shadows)
    kind = type(optimizer)
    known = inspect.signature(kind.__init__).parameters
    groups = [
        {name: value for name, value in group.items() if name != "params"}
        | {"params": [shadow_of[id(p)] for p in group["params"] if id(p) in shadow_of]}
        for group in optimizer.param_groups
    ]
    settings = {name: value for name, value in optimizer.defaults.items() if name in known}
    return kind([group for group in groups if group["params"]], **settings)


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Weights, buffers, gradients and random numbers are put back, in their own precision."""
    tensors = [*model.parameters(), *model.buffers()]
    copies = [tensor.detach().clone() for tensor in tensors]
    gradients = [p.grad for p in model.parameters()]
    generators = capture_rng()
    try:
        yield
    finally:
        now = [*model.parameters(), *model.buffers()]
        for tensor, copy in zip(now, copies, strict=True):
            tensor.data = copy
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            p.grad = gradient
        restore_rng(generators)


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(each.double().square().sum()) for each in tensors))


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(one, other, strict=True))
