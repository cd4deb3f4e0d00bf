"""Which power of two each freedom takes: the one nearest to 1 at which all that depends on it is small enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torch import nn

from stayfinite.precision.surgery.freedoms import Anatomy, Freedom
from stayfinite.precision.surgery.measuring import Size


def exponents_for(model: nn.Module, anatomy: Anatomy, sizes: Mapping[str, Size], limit: float) -> dict[str, int]:
    """Exponents of two by the freedoms' names; those of 0 are left out.

    The residual streams come first, from activations alone. What is within the branches then makes room for weights as
    well, which autocast casts to fp16 like all else.
    """
    weights = {name: float(model.get_parameter(name).detach().abs().amax()) for name in _parameters(anatomy)}
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


def _parameters(anatomy: Anatomy) -> set[str]:
    return {name for freedom in anatomy.freedoms for name in freedom.parameters}
