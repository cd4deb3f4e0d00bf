"""Measure the magnitudes of one step, and find those beyond the fp16 range."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps import changes
from stayfinite.autopsy.steps.batch_parts import with_changed
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.autopsy.tracing.looking import dense
from stayfinite.inspection.bench.inputs import error_in_words
from stayfinite.inspection.probes.operators import HALVES, LARGEST, PRODUCTS, Operation, RangeWatch

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler

Context = Callable[[], AbstractContextManager[Any]]


def in_full(step: Step) -> Step:
    """The step in fp32 throughout."""
    return step.changed(
        partial(changes.autocast_as, None),
        partial(changes.half_weights_as, step.model, torch.float32),
        partial(changes.CastsAs, torch.float32),
        batch=changes.in_full_precision(step.batch),
    )


def in_half(step: Step, dtype: torch.dtype, *, wrap: bool) -> Step:
    """The step in half precision; ``wrap`` if it does not use autocast yet."""
    if wrap:
        device = next((p.device.type for p in step.model.parameters()), "cpu")
        autocast = partial(torch.amp.autocast, device, dtype=dtype)
        return step.changed(partial(changes.autocast_as, dtype), _switched_on, autocast=autocast)
    contexts: tuple[Context, ...] = (
        partial(changes.autocast_as, dtype),
        partial(changes.half_weights_as, step.model, dtype),
        partial(changes.CastsAs, dtype),
    )
    batch = with_changed(step.batch, lambda x: x.to(dtype) if isinstance(x, Tensor) and x.dtype in HALVES else x)
    return step.changed(*contexts, batch=batch)


@contextmanager
def _switched_on() -> Iterator[None]:
    """Enable autocast contexts that the loop disables; those that modules disable themselves stay off."""
    kind: Any = torch.amp.autocast
    entering, running = kind.__enter__, [0]

    def enter(self: Any) -> Any:
        kept = self._enabled
        self._enabled = kept or not running[0]
        try:
            return entering(self)
        finally:
            self._enabled = kept

    def count(step: int) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            running[0] += step

        return hook

    before = nn.modules.module.register_module_forward_pre_hook(count(1))
    after = nn.modules.module.register_module_forward_hook(count(-1), always_call=True)
    with before, after, changes.replaced(kind, __enter__=enter):
        yield


def stored_in_half(model: nn.Module) -> bool:
    """Whether most weights are in half precision."""
    sizes: Counter[bool] = Counter()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype in HALVES] += parameter.numel()
    return sizes[True] > sizes[False]


QUICK = 6.0  # seconds for the fp32 pass above which bf16 is not tried

Key = tuple[str, str, bool, int]
Keyed = Sequence[tuple[Key, Operation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRange:
    """The largest values of one module, in fp32."""

    module: str
    activation: float
    gradient: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """A module that overflows in fp16."""

    module: str
    operator: str
    backward: bool
    largest: float
    """In fp32."""
    first: bool
    """Nothing before it overflows."""

    @property
    def factor(self) -> float:
        """Multiple of the fp16 maximum."""
        return self.largest / LARGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Results of one step in fp32 and one in fp16."""

    products: Mapping[torch.dtype, int]
    """Matrix products of the training's own forward pass, by dtype."""
    modules: Sequence[ModuleRange]
    """Largest activations first."""
    overflows: Sequence[Overflow]
    """One per module and direction; the first overflow, then the worst."""
    loss: float
    """In fp32."""
    loss_bf16: float | None
    """In bf16, if measured."""
    largest_gradient: float
    """Largest gradient that fp16 would hold, at a loss scale of 1."""
    scale: float
    """Loss scale of the fp16 pass."""
    least_scale: float | None
    """Smallest power of two at which at most 1 % of the gradient underflows; None if none is needed."""
    zero_share: float
    """Share of nonzero fp32 gradient elements that are 0 in fp16 at that scale."""
    mixed: bool
    """Under autocast; otherwise the weights are in half precision."""
    fp16_error: str = ""
    """Why the fp16 pass failed; then only products were judged, by their fp32 values."""

    @property
    def half(self) -> torch.dtype | None:
        """The half precision that the training uses, if any."""
        counts = {dtype: count for dtype, count in self.products.items() if dtype in HALVES}
        return max(counts, key=lambda dtype: counts[dtype], default=None)

    @property
    def largest_scale(self) -> float:
        """The largest power of two at which no gradient overflows."""
        if not 0 < self.largest_gradient < math.inf:
            return math.inf if self.largest_gradient == 0 else 0.0
        return 2.0 ** math.floor(math.log2(LARGEST / self.largest_gradient))


def ranges_of(step: Step, scaler: GradScaler | None = None) -> Ranges:
    """Run the step in fp32, and in fp16 from the scaler's scale, and compare; everything is restored."""
    step = step.changed(changes.eager, partial(changes.no_dropout, step.model))
    watch, start = RangeWatch(step.model), time.perf_counter()
    loss, gradients = _run(step, watch)
    products = Counter(seen.dtype for seen in watch.seen if seen.operator in PRODUCTS and not seen.backward)
    half = max((d for d in products if d in HALVES), key=lambda dtype: products[dtype], default=None)
    if half is not None or stored_in_half(step.model):
        watch = RangeWatch(step.model)
        loss, gradients = _run(in_full(step), watch)
    quick = time.perf_counter() - start < QUICK
    values = dict(_keyed(watch.seen))
    largest_product = max((x.largest for x in watch.seen if x.backward and x.operator in PRODUCTS), default=0.0)
    narrow = in_half(step, torch.float16, wrap=half is None)
    scale, zeros, error = _starting_scale(scaler, largest_product), 0.0, ""
    try:
        while True:
            watched = RangeWatch(step.model)
            _, held = _run(narrow.changed(scale=scale), watched)
            keyed = list(_keyed(watched.seen))
            gradient = _largest_gradient(keyed, values)
            if scale == 1.0 or gradient * scale <= LARGEST:
                break
            scale = _starting_scale(scaler, gradient)
        zeros = _became_zero(gradients, held)
    except Exception as problem:  # no fp16 kernel, a constant beyond its range, ...
        error = error_in_words(problem)
        keyed = list(_keyed([_as_if_half(seen) for seen in watch.seen]))
        scale, gradient = 1.0, _largest_gradient(keyed, values)
    return Ranges(
        products=products,
        modules=_modules(keyed, values),
        overflows=_overflows(keyed, values, scale),
        loss=loss,
        loss_bf16=_loss_in_bf16(step, half) if quick else None,
        largest_gradient=gradient,
        scale=scale,
        least_scale=_least_scale(gradients),
        zero_share=zeros,
        mixed=half is None or not stored_in_half(step.model),
        fp16_error=error,
    )


def _forward(step: Step, watch: RangeWatch) -> float:

    def forward(batch: Any) -> Tensor:
        with watch:
            loss = step.forward(batch)
            watch.close()
        # A new leaf makes the backward pass trivial.
        return loss.detach().float().requires_grad_()

    with untouched(step.model):
        loss = step.changed(changes.eager, forward=forward).execute(step.fresh_batch())
    return float(loss.detach())


def _run(step: Step, watch: RangeWatch) -> tuple[float, dict[str, Tensor]]:
    """The loss, and an unscaled sample of each parameter's gradient."""
    sampled: dict[str, Tensor] = {}

    def look() -> None:
        watch.close()
        for name, parameter in step.model.named_parameters():
            if parameter.grad is not None:
                sampled[name] = _sample(dense(parameter.grad.detach())).float() / step.scale

    with untouched(step.model), watch:
        loss = step.execute(step.fresh_batch(), look)
    return float(loss.detach().float()), sampled


SAMPLE = 16384


def _sample(gradient: Tensor) -> Tensor:
    """At most ``SAMPLE`` elements, evenly spread."""
    flat = gradient.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)].clone()


def _keyed(events: Sequence[Operation]) -> Iterator[tuple[Key, Operation]]:
    """Key each operator the same in every precision: by module, name and occurrence."""
    counts: Counter[tuple[str, str, bool]] = Counter()
    for seen in events:
        key = (seen.module, seen.operator, seen.backward)
        counts[key] += 1
        yield (*key, counts[key]), seen


def _largest_gradient(keyed: Keyed, values: Mapping[Key, Operation]) -> float:
    """The largest fp32 value among backward results that fp16 holds."""
    sizes = (values[key].largest for key, seen in keyed if seen.backward and _is_half(seen) and key in values)
    return max(sizes, default=0.0)


def _modules(keyed: Keyed, values: Mapping[Key, Operation]) -> list[ModuleRange]:
    """The values that fp16 would hold, measured in fp32."""
    activations: dict[str, float] = {}
    gradients: dict[str, float] = {}
    for key, seen in keyed:
        full = values.get(key)
        if full is None or not _is_half(seen) or not math.isfinite(full.largest):
            continue
        sizes = gradients if seen.backward else activations
        sizes[seen.module] = max(sizes.get(seen.module, 0.0), full.largest)
    ranges = [
        ModuleRange(module=name, activation=size, gradient=gradients.get(name, 0.0))
        for name, size in activations.items()
    ]
    return sorted(ranges, key=lambda each: -each.activation)


def _is_half(seen: Operation) -> bool:
    return seen.dtype is torch.float16


def _overflows(keyed: Keyed, values: Mapping[Key, Operation], scale: float) -> list[Overflow]:
    """The worst overflow of each module, by its fp32 value if available."""
    worst: dict[tuple[str, bool], Overflow] = {}
    for key, seen in keyed:
        if not seen.leaves:
            continue
        full = values.get(key)
        largest = seen.largest
        if full is not None:
            own = full.largest * (scale if seen.backward else 1.0)
            largest = max(own, largest) if math.isfinite(largest) else max(own, LARGEST)
        place = (seen.module, seen.backward)
        before = worst.get(place)
        if before is None or largest > before.largest or (seen.first and not before.first):
            worst[place] = Overflow(
                module=seen.module,
                operator=seen.operator,
                backward=seen.backward,
                largest=max(largest, 0.0 if before is None else before.largest),
                first=seen.first or (before is not None and before.first),
            )
    return sorted(worst.values(), key=lambda each: (each.backward, not each.first, -each.largest))


def _as_if_half(seen: Operation) -> Operation:
    """Without an fp16 pass: what an fp32 product would be in fp16."""
    product = seen.operator in PRODUCTS
    leaves = product and not seen.backward and seen.largest > LARGEST
    dtype = torch.float16 if product else seen.dtype
    return Operation(seen.operator, seen.backward, seen.module, dtype, seen.largest, leaves, first=leaves)


def _starting_scale(scaler: GradScaler | None, largest_gradient: float) -> float:
    """The scaler's scale, or the one it would settle at if gradients overflow."""
    scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 1.0
    if not 0 < largest_gradient < math.inf:
        return scale
    fits = 2.0 ** math.floor(math.log2(LARGEST / largest_gradient))
    return min(scale, max(fits, 1.0))


ZERO_IN_HALF = 2.0**-25  # values up to this round to 0 in fp16
FEW = 0.01


def _least_scale(gradients: Mapping[str, Tensor]) -> float | None:
    alive = [g[g != 0].abs() for g in gradients.values()]
    sizes = torch.cat([each.cpu() for each in alive if each.numel()] or [torch.zeros(0)])
    if not sizes.numel():
        return None
    small = float(sizes.kthvalue(max(1, math.ceil(FEW * sizes.numel()))).values)
    if not math.isfinite(small) or small >= ZERO_IN_HALF:
        return None
    return 2.0 ** math.ceil(math.log2(ZERO_IN_HALF / small))


def _became_zero(full: Mapping[str, Tensor], held: Mapping[str, Tensor]) -> float:
    alive = lost = 0
    for name, gradient in full.items():
        other = held.get(name)
        if other is None or other.shape != gradient.shape:
            continue
        there = gradient != 0
        alive += int(there.sum())
        lost += int((there & (other == 0)).sum())
    return lost / alive if alive else 0.0


def _loss_in_bf16(step: Step, half: torch.dtype | None) -> float | None:
    try:
        loss = _forward(in_half(step, torch.bfloat16, wrap=half is None), RangeWatch(step.model))
    except Exception:  # no bf16 kernel; the value is only informative
        return None
    return loss if math.isfinite(loss) else None
