"""Apply a precision plan to a model by swapping the classes of its modules, so copies, shards and compilers see plain
code.

A module's class becomes a subclass whose forward enters or leaves autocast. Parameters, hooks, names and the
optimizer are unchanged. fp8 linear layers come from torchao.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from stayfinite.autopsy.steps.changes import in_full
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.precision.candidates import HALVES, Assignment
from stayfinite.state.shards import is_spread

MARK = "_precision_applied"
"""Attribute of the model that holds its `Applied`."""


@dataclass(kw_only=True)
class Applied:
    """Record of the plan applied to a model."""

    assignment: Assignment
    region: bool
    originals: dict[str, nn.Module] = field(default_factory=dict)
    """The linear layers that fp8 ones replaced, by name."""


def apply(model: nn.Module, assignment: Assignment, *, region: bool) -> nn.Module:
    """Apply an assignment to the model, in place. Raises UsageError if a plan is already applied."""
    if applied_to(model) is not None:
        raise UsageError("a plan is already applied to this model", fix="plan.undo(model) first")
    applied = Applied(assignment=assignment, region=region)
    for recipe in ("fp8", "fp8-rowwise"):
        _to_fp8(model, recipe, assignment.named(recipe), applied)
    for name in assignment.named("fp32"):
        _reclass(model.get_submodule(name), "fp32")
    if region and assignment.base in HALVES:
        _reclass(model, assignment.base)
    vars(model)[MARK] = applied
    return model


def undo(model: nn.Module) -> nn.Module:
    """Undo the applied plan, if any."""
    applied = applied_to(model)
    if applied is None:
        return model
    if applied.region and applied.assignment.base in HALVES:
        _declass(model, "the model")
    for name in applied.assignment.named("fp32"):
        _declass(model.get_submodule(name), name)
    for name in list(applied.originals):
        _from_fp8(model, name, applied)
    del vars(model)[MARK]
    return model


def applied_to(model: nn.Module) -> Applied | None:
    """The record of the plan applied to this model, or None."""
    found = vars(model).get(MARK)
    return found if isinstance(found, Applied) else None


def raise_format(model: nn.Module, name: str) -> str:
    """Raise one module's precision during training: fp8 to the base format, anything else to fp32. Returns the new
    format.
    """
    applied = applied_to(model)
    assert applied is not None, "only modules of an applied plan can change"
    formats = dict(applied.assignment.formats)
    if formats.get(name, "").startswith("fp8"):
        _from_fp8(model, name, applied)
        del formats[name]
        reached = applied.assignment.base
    else:
        _reclass(model.get_submodule(name), "fp32")
        formats[name] = reached = "fp32"
    applied.assignment = Assignment(base=applied.assignment.base, formats=formats)
    return reached


def planned_class(kind: type[nn.Module], how: str) -> type[nn.Module]:
    """A subclass of a module class that computes in fp32, or under bf16 or fp16 autocast."""
    if (kind, how) in _MADE:
        return _MADE[kind, how]
    forward = _fp32_forward(kind) if how == "fp32" else _autocast_forward(kind, HALVES[how])

    def reduced(self: Any, _protocol: Any) -> tuple[Any, ...]:
        # Copy and pickle through the original class: this one cannot be imported.
        return _rebuilt, (kind, how), dict(vars(self))

    # Keep the class name: transformers writes it into checkpoints.
    body = {"forward": forward, "__reduce_ex__": reduced, "__module__": kind.__module__, "planned_from": kind}
    return _MADE.setdefault((kind, how), cast("type[nn.Module]", type(kind.__name__, (kind,), body)))


_MADE: dict[tuple[type[nn.Module], str], type[nn.Module]] = {}


def _fp32_forward(kind: type[nn.Module]) -> Callable[..., Any]:
    @wraps(kind.forward)  # trainers read the batch keys from the signature
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(in_full, (args, kwargs))
        device = next((x.device.type for x in self.parameters(recurse=True)), "cpu")
        with torch.autocast(device, enabled=False):
            stored = next((p.dtype for p in self.parameters() if in_full(p) is not p), None)
            if stored is None:
                return kind.forward(self, *args, **kwargs)
            # Weights and neighbors are in half precision: compute in fp32, return half.
            wide = {name: p.float() for name, p in self.named_parameters()}
            output = torch.func.functional_call(self, wide, args, kwargs)
            return tree_map(lambda x: x.to(stored) if isinstance(x, Tensor) and x.is_floating_point() else x, output)

    return forward


def _autocast_forward(kind: type[nn.Module], dtype: torch.dtype) -> Callable[..., Any]:
    @wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        device = next((x.device.type for x in self.parameters()), "cpu")
        with torch.autocast(device, dtype=dtype):
            output = kind.forward(self, *args, **kwargs)
        # Return fp32, so that a loss computed outside gets what autocast would give it.
        return tree_map(in_full, output)

    return forward


def _rebuilt(kind: type[nn.Module], how: str) -> nn.Module:
    made = planned_class(kind, how)
    return made.__new__(made)


def _reclass(module: nn.Module, how: str) -> None:
    module.__class__ = planned_class(type(module), how)


def _declass(module: nn.Module, name: str) -> None:
    before = vars(type(module)).get("planned_from")
    if before is None:
        raise UsageError(
            f"{name or 'the model'} was wrapped after the plan was applied: it is a {type(module).__name__}",
            fix="undo the plan before fully_shard",
        )
    module.__class__ = before


def _to_fp8(model: nn.Module, recipe: str, names: list[str], applied: Applied) -> None:
    if not names:
        return
    with MissingExtra.unless("torchao", extra="fp8", what_for="fp8 in this plan"):
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    from dataclasses import replace

    weight = cast(Tensor, model.get_submodule(names[0]).weight)
    if is_spread(weight):
        raise UsageError(f"{names[0]} is already sharded, and fp8 replaces it", fix="apply the plan before fully_shard")
    config = Float8LinearConfig.from_recipe_name("rowwise" if recipe == "fp8-rowwise" else "tensorwise")
    if not has_fp8(weight.device):
        if weight.is_cuda:
            card = torch.cuda.get_device_name(weight.device)
            raise UsageError(f"{card} has no fp8, but the plan uses it", fix="plan for it: --gpu this")
        config = replace(config, emulate=True)
    applied.originals.update({name: model.get_submodule(name) for name in names})
    wanted = set(names)
    convert_to_float8_training(model, module_filter_fn=lambda _module, name: name in wanted, config=config)


def has_fp8(device: torch.device) -> bool:
    """Whether the device has fp8 matrix products. A CPU emulates them."""
    return device.type == "cuda" and (
        torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 9)
    )


def _from_fp8(model: nn.Module, name: str, applied: Applied) -> None:
    original, now = applied.originals.pop(name), model.get_submodule(name)
    original._parameters.update(now._parameters)  # may have been sharded or loaded since
    original.training = now.training
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, original)
