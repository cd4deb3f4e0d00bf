"""Worlds: the same step with exactly one thing changed. Each shows whether that thing made the step bad."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RAdam

from stayfinite.autopsy.steps import changes
from stayfinite.autopsy.steps.batch_parts import batch_items, with_changed
from stayfinite.autopsy.steps.step import Outcome, Step
from stayfinite.autopsy.steps.trace import Trace
from stayfinite.autopsy.tracing.origin import custom_function
from stayfinite.autopsy.worlds import eight_bits, elsewhere
from stayfinite.autopsy.worlds.guarded import FiniteConstants, GuardedLine, can_be_guarded
from stayfinite.core.source_lines import line_in_words


def before_last_update(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor] | None:
    """Weights by name; None if the step cannot be undone, or there was none."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    weights: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if parameter not in names or not state:
                continue
            update = _update(optimizer, group, state)
            if update is None:
                return None
            decay = 1.0 - float(group["lr"]) * float(group.get("weight_decay", 0.0)) * _decoupled(optimizer, group)
            before = parameter.detach().double() + float(group["lr"]) * update
            weights[names[parameter]] = (before / decay).to(parameter.dtype)
    return weights or None


def _decoupled(optimizer: Optimizer, group: dict[str, Any]) -> float:
    return float(isinstance(optimizer, AdamW) or bool(group.get("decoupled_weight_decay")))


def _update(optimizer: Optimizer, group: dict[str, Any], state: dict[str, Tensor]) -> Tensor | None:
    """The last update divided by the learning rate."""
    if isinstance(optimizer, SGD):
        momentum = state.get("momentum_buffer")
        return None if momentum is None else momentum.double()
    if isinstance(optimizer, NAdam | RAdam) or not isinstance(optimizer, Adam | AdamW):
        return None
    if "exp_avg" not in state:
        return None
    first, second = group["betas"]
    count = float(state["step"])
    mean = state["exp_avg"].double() / (1 - float(first) ** count)
    size = (state["exp_avg_sq"].double() / (1 - float(second) ** count)).sqrt()
    eps = torch.tensor(float(group["eps"]), dtype=state["exp_avg"].dtype).double()
    update: Tensor = mean / (size + eps)
    return update


TOO_LARGE_TO_SQUARE = math.sqrt(torch.finfo(torch.float32).max)
"""A larger gradient norm overflows in fp32, where squares are summed, even if every gradient is finite."""

ELSEWHERE = "other_device"
"""The world that may take longer than all others together."""

REMEDY = "return to the weights before the last update"

Context = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """Optional material for explaining a step."""

    good_weights: Mapping[str, Tensor] | None = None
    """Parameters and buffers of the last known-good state, by name."""
    optimizer: Optimizer | None = None
    """With its state: the last update can be undone."""
    spike_limit: Mapping[str, float] | None = None
    """`loss` and `grad_norm` above which a finite step counts as bad."""
    trigger: str = "manual"
    """Code of the decision that led here."""
    compiled: bool = False
    """Whether the model or a part of it is compiled."""
    device: str = ""
    """Type of device on which the step was bad; empty for the model's own."""
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """One change."""

    name: str
    change: str
    """What is different, in words."""
    step: Step
    remedy: str = ""
    """What to do in training; empty for the change itself."""
    modules: tuple[str, ...] = ()
    """Modules that the change is about."""


def low_precision(step: Step, trace: Trace) -> torch.dtype | None:
    """The half precision that the step uses, from its weights or the trace."""
    weights = {parameter.dtype for parameter in step.model.parameters()}
    for dtype in changes.HALVES:
        if dtype in weights or str(dtype).removeprefix("torch.") in trace.dtypes:
            return dtype
    return None


def precision_world(step: Step, name: str) -> World:
    """The step in fp32, bf16 or fp16 throughout."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    contexts: tuple[Context, ...] = (
        partial(changes.autocast_as, None if name == "fp32" else dtype),
        partial(changes.half_weights_as, step.model, dtype),
        partial(changes.CastsAs, dtype),
    )
    batch = step.batch if name == "fp16" else _cast(step.batch, dtype)
    scale = step.scale if name == "fp16" else 1.0
    return World(name, f"everything in {name}", step.changed(*contexts, batch=batch, scale=scale), f"compute in {name}")


Builders = dict[str, Callable[[], World | None]]
"""Worlds by name. A builder may return None if its world is impossible."""


def all_worlds(step: Step, trace: Trace, materials: Materials) -> Builders:
    """All worlds that make sense for this step, cheapest first."""
    return _Possible(step, trace, materials).builders


class _Possible:
    """Collects the worlds that make sense for a step; ``builders`` has them in order."""

    def __init__(self, step: Step, trace: Trace, materials: Materials) -> None:
        self._step, self._model, self._trace, self._materials = step, step.model, trace, materials
        self.builders: Builders = {}
        self._add("same", "nothing")
        self._of_the_batch()
        self._of_precision()
        self._of_eight_bits()
        self._of_the_origin()
        self._of_kernels()
        self._of_weights()
        there = elsewhere.other_device(step)
        if there is not None and not elsewhere.draws_numbers(trace):
            self.builders[ELSEWHERE] = partial(_elsewhere, step, trace, there)

    def _add(
        self, name: str, change: str, *around: Context, remedy: str = "", modules: Sequence[str] = (), **fields: Any
    ) -> None:
        """Add a world: its name, the change in words, and what to do it with."""
        self.builders[name] = lambda: World(name, change, self._step.changed(*around, **fields), remedy, tuple(modules))

    def _of_the_batch(self) -> None:
        items = batch_items(self._step.batch).values()
        if all(bool(item.isfinite().all()) for item in items if item.is_floating_point()):
            return
        self._add(
            "inputs_sanitized", "NaN and inf in the batch set to 0", batch=changes.finite_inputs(self._step.batch)
        )

    def _of_precision(self) -> None:
        """Other formats and loss scales, throughout or in the origin's module."""
        step, module, low = self._step, self._trace.module, low_precision(self._step, self._trace)
        if low is not None:
            self.builders["fp32"] = partial(precision_world, step, "fp32")
        if low is torch.float16:
            self.builders["bf16"] = partial(precision_world, step, "bf16")
        if step.scale != 1.0:
            self._add("small_loss_scale", "loss scale 1", scale=1.0)
        if low is torch.float16 and step.scale <= 1.0 and self._trace.finite:
            self._add("large_loss_scale", "loss scale 65,536", scale=65536.0)
        if low is not None and module and module in dict(self._model.named_modules()):
            self._add("origin_fp32", f"{module} in fp32", partial(changes.module_in_fp32, self._model, module))

    def _of_eight_bits(self) -> None:
        """fp8 layers in bf16, or with rowwise scales."""
        model, trace = self._model, self._trace
        swapped = eight_bits.torchao_layers(model)
        others = eight_bits.casting_layers(model) if any("float8" in dtype for dtype in trace.dtypes) else []
        if layers := swapped or others:
            self.builders["module_bf16"] = partial(_without_fp8, self._step, trace, self._materials, layers)
        if coarse := [path for path in swapped if eight_bits.is_tensorwise(model, path)]:
            scaled = partial(eight_bits.rowwise, model, coarse)
            self._add("rowwise_scale", "rowwise fp8 scales", scaled, remedy="use rowwise scales", modules=coarse)

    def _of_the_origin(self) -> None:
        """The origin's line guarded, or a finite mask."""
        origin = self._trace.origin
        if origin is None:
            return
        event = origin.event
        if event is not None and (place := event.place) is not None:
            behind = event if event.called_back else origin.forward or event
            operator = behind.operator.rpartition(".")[2]
            at = line_in_words(place.file, place.line)
            divides = operator in ("div", "divide", "true_divide")
            change = f"denominator at {at} kept away from 0" if divides else f"{operator} at {at} clamped to its domain"
            if can_be_guarded(operator):
                # Compiled code bypasses the guard.
                self._add("origin_guarded", change, changes.eager, partial(GuardedLine, place))
        if origin.mask is not None and origin.mask.place is not None:
            finite = partial(FiniteConstants, origin.mask.place)
            self._add("mask_finite", "a large finite number in the mask, not inf", finite)

    def _of_kernels(self) -> None:
        """Other kernels, or no dropout."""
        model, trace = self._model, self._trace
        if trace.uses_attention:
            self._add("math_attention", "math attention kernel", changes.math_attention)
        if hasattr(model, "set_attn_implementation") and _attention_of(model) not in ("", "eager"):
            self._add("eager_attention", "attention in plain operators", partial(changes.eager_attention, model))
        if function := custom_function(trace.origin):
            derived = partial(changes.derived_backward, function)
            self._add("derived_backward", f"autograd's own backward for {function}", derived)
        if self._materials.compiled or _is_compiled(self._step):
            self._add("eager", "eager mode, not compiled", changes.eager)
        if trace.uses_dropout:
            self._add("dropout_off", "no dropout", partial(changes.no_dropout, model))

    def _of_weights(self) -> None:
        """The bad leaf repaired, or earlier weights."""
        origin, materials = self._trace.origin, self._materials
        if origin is not None and origin.tensor is not None and not origin.leaf.startswith("batch"):
            mended = partial(changes.mended, origin.tensor)
            self._add("leaf_mended", f"NaN and inf in {origin.leaf} set to 0", mended)
        if materials.good_weights is not None:
            good = partial(changes.weights_from, self._model, materials.good_weights)
            self._add("good_weights", "last known-good weights", good, remedy=REMEDY)
        if materials.optimizer is not None:
            self.builders["previous_update_undone"] = partial(_undone, self._step, materials.optimizer)


def _without_fp8(step: Step, trace: Trace, materials: Materials, layers: list[str]) -> World:
    """The fewest layers in bf16 that make the step good; all of them if none do."""

    def helps(some: Sequence[str]) -> bool:
        outcome = step.changed(partial(eight_bits.in_bf16, step.model, some)).run()
        return not outcome.error and not bad(outcome, materials)

    origin = [path for path in layers if trace.module == path or trace.module.startswith(f"{path}.")]
    found = origin if origin and helps(origin) else eight_bits.guilty(layers, helps)
    named = found or layers
    what = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    without = step.changed(partial(eight_bits.in_bf16, step.model, named))
    return World("module_bf16", f"{what} in bf16, not fp8", without, f"keep {what} in bf16", tuple(named))


def too_large(outcome: Outcome, materials: Materials) -> bool:
    """Whether finite gradients only overflow in the norm, for a step refused for its norm."""
    return materials.trigger == "gradient-not-finite" and outcome.finite and outcome.grad_norm > TOO_LARGE_TO_SQUARE


def bad(outcome: Outcome, materials: Materials) -> bool:
    """Whether a step is bad: not finite, or above the spike limits."""
    if not outcome.finite or too_large(outcome, materials):
        return True
    limits = materials.spike_limit or {}
    return outcome.loss > limits.get("loss", float("inf")) or outcome.grad_norm > limits.get("grad_norm", float("inf"))


def _undone(step: Step, optimizer: Optimizer) -> World | None:
    weights = before_last_update(step.model, optimizer)
    if weights is None:
        return None
    undone = step.changed(partial(changes.weights_from, step.model, weights))
    return World("previous_update_undone", "the last update undone", undone, REMEDY)


def _elsewhere(step: Step, trace: Trace, device: torch.device) -> World:
    """Another device draws other random numbers, so dropout is off: compare with the world without dropout."""
    change = f"everything on {device.type}{', and no dropout' if trace.uses_dropout else ''}"
    moved = elsewhere.moved_to(step, device, dropout=not trace.uses_dropout)
    return World(ELSEWHERE, change, moved, f"compute it on {device.type}")


def _attention_of(model: nn.Module) -> str:
    """Attention implementation of a transformers model."""
    return str(getattr(getattr(model, "config", None), "_attn_implementation", None) or "")


def _is_compiled(step: Step) -> bool:
    """Whether the model, a part of it, or the forward pass is compiled."""
    if "torch._dynamo" not in sys.modules:
        return False
    parts = [*step.model.modules(), step.forward]
    return any(hasattr(part, "_torchdynamo_orig_callable") or hasattr(part, "_orig_mod") for part in parts)


def _cast(batch: Any, dtype: torch.dtype) -> Any:
    if dtype is torch.float32:
        return changes.in_full_precision(batch)
    return with_changed(batch, lambda x: x.to(dtype) if isinstance(x, Tensor) and x.dtype is torch.float16 else x)
