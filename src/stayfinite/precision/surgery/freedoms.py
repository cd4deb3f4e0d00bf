"""A freedom of a network: one number by which its inside may be multiplied while its function stays what it is."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from stayfinite.precision.surgery.measuring import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedom:
    """With a factor f: what each parameter and each activation is multiplied by, as powers of f."""

    name: str
    """`residual stream`, `encoder.block.0 feed-forward`."""
    parameters: Mapping[str, int]
    """Name of a parameter -> the power of f that it takes."""
    activations: Mapping[str, int]
    """`module:in` or `module:out` -> the power of f that it takes."""
    norms: Sequence[str] = ()
    """Modules whose epsilon takes f squared, because their input takes f."""
    setting: str = ""
    """The config's setting with this epsilon; empty where the code fixes it, and the freedom is nearly one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """What is known of one architecture."""

    family: str
    freedoms: Sequence[Freedom]
    fixed: Mapping[str, str] = field(default_factory=dict)
    """`module:out` -> the operator after it that no freedom passes, in words."""
    offsets: frozenset[str] = frozenset()
    """Parameters that are stored less 1: Gemma's norms multiply by 1 + weight."""


@torch.no_grad()
def scale(model: nn.Module, anatomy: Anatomy, exponents: Mapping[str, int]) -> dict[str, int]:
    """Multiply parameters by powers of two, by the freedoms' names. Returns the exponent of each changed one."""
    taken: dict[str, int] = {}
    for freedom in anatomy.freedoms:
        if exponent := exponents.get(freedom.name, 0):
            for name, power in freedom.parameters.items():
                taken[name] = taken.get(name, 0) + power * exponent
            _scale_epsilon(model, freedom, exponent)
    taken = {name: exponent for name, exponent in taken.items() if exponent}
    for name, exponent in taken.items():
        parameter = model.get_parameter(name)
        if name in anatomy.offsets:
            parameter.copy_(((parameter.double() + 1) * 2.0**exponent - 1).to(parameter.dtype))
        else:
            parameter.mul_(2.0**exponent)
    return taken


def _scale_epsilon(model: nn.Module, freedom: Freedom, exponent: int) -> None:
    if not freedom.setting:
        return
    factor = 4.0**exponent
    for path in freedom.norms:
        norm: Any = model.get_submodule(path)
        name = "variance_epsilon" if hasattr(norm, "variance_epsilon") else "eps"
        setattr(norm, name, getattr(norm, name) * factor)
    # Encoder and decoder of a T5 have copies of the config; one object is changed once.
    configs = {id(config): config for module in model.modules() if (config := getattr(module, "config", None))}
    for config in configs.values():
        if hasattr(config, freedom.setting):
            setattr(config, freedom.setting, getattr(config, freedom.setting) * factor)


def exponents_for(model: nn.Module, anatomy: Anatomy, sizes: Mapping[str, Size], limit: float) -> dict[str, int]:
    """Exponents of two by the freedoms' names; those of 0 are left out.

    The residual streams come first, from activations alone. What is within the branches then makes room for weights as
    well, which autocast casts to fp16 like all else.
    """
    names = {name for freedom in anatomy.freedoms for name in freedom.parameters}
    weights = {name: float(model.get_parameter(name).detach().abs().amax()) for name in names}
    chosen: dict[str, int] = {}
    for freedom in anatomy.freedoms:
        known = [(sizes[name].largest, power) for name, power in freedom.activations.items() if name in sizes]
        exponent = _nearest(known, limit)
        if not freedom.norms:
            heavy = [(weights[name], power) for name, power in freedom.parameters.items() if weights[name] > limit]
            exponent = _nearest([*known, *heavy], limit) if heavy and exponent == 0 else exponent
        if exponent:
            chosen[freedom.name] = exponent
            for name, power in freedom.parameters.items():
                weights[name] *= 2.0 ** (power * exponent)
    return chosen


def deciding(freedom: Freedom, sizes: Mapping[str, Size]) -> str:
    """The largest activation that depends on a freedom."""
    known = [name for name in freedom.activations if name in sizes]
    return max(known, key=lambda name: sizes[name].largest, default="")


def _nearest(sizes: Iterable[tuple[float, int]], limit: float) -> int:
    """The exponent nearest to 0 with every size within the limit, given each size with its power."""
    least, most = -math.inf, math.inf
    for size, power in sizes:
        if not 0 < size < math.inf:
            continue
        room = math.log2(limit / size) / power
        if power > 0:
            most = min(most, math.floor(room))
        else:
            least = max(least, math.ceil(room))
    if least <= 0 <= most:
        return 0
    if least > most:  # nothing fits both sides: share what is too much
        return round((least + most) / 2)
    return int(most if most < 0 else least)
