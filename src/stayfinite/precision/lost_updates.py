"""Update lost when weights are stored in 16 bits, and how much fp32 copies, Kahan sums and stochastic rounding save.

All methods take the same steps: same start, same batches, same optimizer with fp32 moments. They differ only in how
``weight + update`` is stored.
"""

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
from stayfinite.inspection.bench.given import forward_for
from stayfinite.inspection.bench.passes import rounded_away
from stayfinite.precision.formats import BF16, FP16, FP32, Format, format_named
from stayfinite.state.rng import capture_rng, restore_rng

Factory = Callable[[list[nn.Parameter]], Optimizer]
COPY = "fp32 copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Result of one storage method, over all steps."""

    way: str
    """`fp32 copy`, `Kahan sum`, `stochastic rounding`, or `nearest` (no copy, like a plain optimizer)."""
    bytes: int
    """Bytes per weight, including its copy or compensation."""
    rounded_away: float
    """Share of weights with a gradient that a step left unchanged, mean over steps."""
    norm_lost: float
    """Norm of the update not stored over the norm of the update, mean over steps."""
    cosine: float
    """Cosine of the total update with that of fp32."""
    error: float
    """Norm of the difference from fp32's total update, relative to it."""
    loss: float
    """Final loss, mean over the batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostUpdates:
    """Comparison of the storage methods."""

    format: str
    steps: int
    fp32_loss: float
    """Final loss with everything in fp32."""
    ways: Sequence[Kept]

    def way(self, name: str) -> Kept:
        return next(each for each in self.ways if each.way == name)

    def to_json(self) -> dict[str, Any]:
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
    """Train a few steps with each storage method and compare. Leaves the model and random state unchanged.

    Arguments:
        model: weights in any precision.
        optimizer: its class, groups and settings are used, from a fresh state; or ``factory(parameters)`` makes one.
        batches: used in turn.
        forward: ``forward(batch) -> loss``; default ``model(**batch)`` for mappings.
        steps: default: one per batch.
        format: storage format of the weights: `bf16` or `fp16`.

    Raises:
        UsageError: no batches, no trainable parameter, or another format.
    """
    stored = format_named(format)
    if stored not in (BF16, FP16):
        raise UsageError(f"format is {format!r}", fix="'bf16' or 'fp16'; wider weights lose almost nothing")
    trained = _trained(model)
    if not batches or not trained:
        missing = "no batch to step with" if not batches else "the model has no trainable parameters"
        raise UsageError(missing, fix="lost_updates(model, optimizer, [batch, ...])")
    run = forward_for(model, batches[0], forward)
    turns = [batches[step % len(batches)] for step in range(len(batches) if steps is None else steps)]
    # Each method, with the extra bytes it keeps per weight.
    methods: dict[str, tuple[int, Keep]] = {
        "nearest": (0, _nearest),
        "stochastic rounding": (0, _stochastic()),
        "Kahan sum": (2, _with_kahan),
        COPY: (4, _with_copy),
    }
    ways = []
    with _as_before(model):
        start = [p.detach().float().clone() for p in trained]
        exact = _Course(model, optimizer, run, start, FP32, _in_full)
        fp32_loss, _ = exact.take(turns, batches)
        moved = _differences(exact.remembered, start)
        for name, (extra, keep) in methods.items():
            # Only an fp32 copy starts from the exact weights.
            begin = start if name == COPY else [stored.rounded(each) for each in start]
            course = _Course(model, optimizer, run, begin, stored, keep)
            loss, shares = course.take(turns, batches)
            own = _differences(course.remembered, begin)
            away, lost = (sum(each) / len(shares) for each in zip(*shares, strict=True))
            ways.append(
                Kept(
                    way=name,
                    bytes=stored.bytes + extra,
                    rounded_away=away,
                    norm_lost=lost,
                    cosine=_dot(own, moved) / max(_norm(own) * _norm(moved), 1e-30),
                    error=_norm(_differences(own, moved)) / max(_norm(moved), 1e-30),
                    loss=loss,
                )
            )
    return LostUpdates(format=stored.name, steps=len(turns), fp32_loss=fp32_loss, ways=ways)


Keep = Callable[[Tensor, Tensor, Format], tuple[Tensor, Tensor]]
"""(remembered weight, update, stored format) -> (weight to compute with, weight to remember)."""


def _in_full(weight: Tensor, update: Tensor, _stored: Format) -> tuple[Tensor, Tensor]:
    return weight + update, weight + update


def _nearest(weight: Tensor, update: Tensor, stored: Format) -> tuple[Tensor, Tensor]:
    new = stored.rounded(weight + update)
    return new, new


def _with_copy(weight: Tensor, update: Tensor, stored: Format) -> tuple[Tensor, Tensor]:
    return stored.rounded(weight + update), weight + update


def _with_kahan(weight: Tensor, update: Tensor, stored: Format) -> tuple[Tensor, Tensor]:
    # Remember the stored weight plus the remainder, both in the storage format.
    total = weight + update
    new = stored.rounded(total)
    return new, new + stored.rounded(total - new)


def _stochastic() -> Keep:
    generators: dict[torch.device, torch.Generator] = {}

    def keep(weight: Tensor, update: Tensor, stored: Format) -> tuple[Tensor, Tensor]:
        total = weight + update
        if total.device not in generators:
            generators[total.device] = torch.Generator(total.device).manual_seed(0)
        chance = torch.rand(total.shape, generator=generators[total.device], device=total.device)
        new = rounded_by_chance(total, chance, stored)
        return new, new

    return keep


def rounded_by_chance(values: Tensor, chance: Tensor, stored: Format) -> Tensor:
    """Stochastic rounding: to one of the two neighbors, with the value as the mean."""
    exponent = torch.frexp(values).exponent - 1
    step = torch.ldexp(torch.full_like(values, stored.epsilon), exponent).clamp_min(stored.smallest_subnormal)
    below = (values / step).floor()
    return stored.rounded((below + (chance < values / step - below).to(values.dtype)) * step)


class _Course:
    """One training run with weights as fp32 tensors that hold only values the format can represent."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Factory,
        run: Callable[[Any], Any],
        start: list[Tensor],
        stored: Format,
        keep: Keep,
    ) -> None:
        self._model, self._run, self._stored, self._keep = model, run, stored, keep
        self._trained = _trained(model)
        self._shadows = [nn.Parameter(torch.empty_like(p, dtype=torch.float32)) for p in self._trained]
        shadow_of = {id(p): shadow for p, shadow in zip(self._trained, self._shadows, strict=True)}
        self._optimizer = _another(optimizer, shadow_of, self._shadows)
        self.remembered = [each.clone() for each in start]

    def take(self, turns: Sequence[Any], batches: Sequence[Any]) -> tuple[float, list[tuple[float, float]]]:
        """Take the steps. Returns the final loss, and each step's share rounded away, by count and by norm."""
        generators = capture_rng()
        self._model.to(self._stored.dtype)
        for p, value in zip(self._trained, self.remembered, strict=True):
            p.data.copy_(value)
        shares = [self._step(batch) for batch in turns]
        with torch.no_grad():
            losses = [float(self._run(tree_map(self._cast, batch))) for batch in batches]
        restore_rng(generators)
        return sum(losses) / len(losses), shares

    def _step(self, batch: Any) -> tuple[float, float]:
        for p in self._trained:
            p.grad = None
        self._run(tree_map(self._cast, batch)).backward()
        for p, shadow, weight in zip(self._trained, self._shadows, self.remembered, strict=True):
            shadow.data.copy_(weight)
            shadow.grad = None if p.grad is None else p.grad.detach().float()
        self._optimizer.step()
        alive = away = 0
        whole = lost = 0.0
        for index, (p, shadow) in enumerate(zip(self._trained, self._shadows, strict=True)):
            if p.grad is None:
                continue
            before = self.remembered[index]
            update = shadow.detach() - before
            used, kept = self._keep(before, update, self._stored)
            gone, counted = rounded_away(before, kept, p.grad)
            away, alive = away + gone, alive + counted
            lost += float((before + update - kept).double().square().sum())
            whole += float(update.double().square().sum())
            self.remembered[index] = kept
            p.data.copy_(used)
        return (away / alive if alive else 0.0), (math.sqrt(lost / whole) if whole else 0.0)

    def _cast(self, part: Any) -> Any:
        return part.to(self._stored.dtype) if isinstance(part, Tensor) and part.is_floating_point() else part


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad and p.is_floating_point()]


def _another(
    optimizer: Optimizer | Factory, shadow_of: Mapping[int, nn.Parameter], shadows: list[nn.Parameter]
) -> Optimizer:
    """A fresh optimizer with the same class and settings over the shadow parameters."""
    if not isinstance(optimizer, Optimizer):
        return optimizer(shadows)
    kind = type(optimizer)
    known = inspect.signature(kind.__init__).parameters
    groups = [
        group | {"params": [shadow_of[id(p)] for p in group["params"] if id(p) in shadow_of]}
        for group in optimizer.param_groups
    ]
    settings = {name: value for name, value in optimizer.defaults.items() if name in known}
    return kind([group for group in groups if group["params"]], **settings)


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Restore weights, buffers, gradients, dtypes and random state on exit."""
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


def _differences(these: Sequence[Tensor], those: Sequence[Tensor]) -> list[Tensor]:
    return [a - b for a, b in zip(these, those, strict=True)]


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(each.double().square().sum()) for each in tensors))


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(one, other, strict=True))
