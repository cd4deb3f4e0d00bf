"""Which power of two each freedom takes: the one nearest to 1 at which all that depends on it is small enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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


class Levels(NamedTuple):
    """The sizes of one tensor."""

    largest: float
    typical: float
    """Root of the mean square."""


def balanced_exponents(
    model: nn.Module, freedoms: Sequence[Freedom], levels: Mapping[str, Levels], *, near: float, target: float
) -> dict[str, int]:
    """Exponents for factors that are applied in the forward pass, by the freedoms' names; those of 0 are left out.

    Where an activation or a weight is beyond `near`, its freedom brings it below `target`. A branch whose last weight
    is made smaller shares the factor with what this weight reads: neither gets so small that fp16 rounds it away.
    """
    weights = {name: _weight_levels(model.get_parameter(name)) for each in freedoms for name in each.parameters}
    chosen: dict[str, int] = {}
    taken = dict.fromkeys(weights, 0)
    for freedom in freedoms:
        known = [(levels[name].largest, power) for name, power in freedom.activations.items() if name in levels]
        known += [(weights[name].largest * 2.0 ** taken[name], power) for name, power in freedom.parameters.items()]
        exponent = _nearest(known, target) if any(size > near for size, _ in known) else 0
        if freedom.restored is None:
            exponent = min(exponent, _shared(freedom, weights, levels, taken))
        if exponent:
            chosen[freedom.name] = exponent
            for name, power in freedom.parameters.items():
                taken[name] += power * exponent
    return chosen


def _shared(
    freedom: Freedom, weights: Mapping[str, Levels], levels: Mapping[str, Levels], taken: Mapping[str, int]
) -> int:
    """The exponent at which a weight that was made smaller and what it reads are equally small; 0 if none was."""
    smaller = [name for name, power in freedom.parameters.items() if power < 0 and taken[name] < 0]
    if len(smaller) != 1:
        return 0
    (last,) = smaller
    first = [weights[name].typical for name, power in freedom.parameters.items() if power > 0]
    read = levels.get(f"{last.rpartition('.')[0]}:in")
    sizes = [size for size in [*first, read.typical if read else 0.0] if size > 0]
    if not sizes or not weights[last].typical:
        return 0
    ideal = (math.log2(weights[last].typical) + taken[last] - math.log2(min(sizes))) / 2
    return round(max(taken[last], min(0.0, ideal)))


def _weight_levels(parameter: nn.Parameter) -> Levels:
    sizes = parameter.detach().float()
    return Levels(float(sizes.abs().amax()), float(sizes.square().mean().sqrt()))


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
