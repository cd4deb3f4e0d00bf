"""Which power of two each freedom takes, so that activations, weights and gradients all sit well inside fp16's range.

A stream that is made smaller makes its gradients larger, and what one weight gains its partner loses. So the factors
are chosen together: room above the largest value, for it grows in training, and below the typical one, for fp16 rounds
what is small to 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stayfinite.precision.surgery.freedoms import Anatomy, Freedom
from stayfinite.precision.surgery.measuring import Size

ROOM = 32.0
"""What goes through a linear layer is kept so far below the limit: at a limit of a quarter it may grow 128 times."""
GRADIENTS = 2.0**14
"""A gradient may grow 4 times before the scaler halves its scale."""
LOW = -12
"""Of two: a value 4 times smaller than the typical one still has all its bits."""
FATAL = 100.0
"""What too large counts: it overflows, and a gradient that does lowers all others. Too small only loses precision."""
LOSS_SCALE = 16
"""Of two: where a GradScaler starts. It goes lower by itself, and not higher for 2,000 steps."""
NEAR = 1e-3
"""What a factor costs by itself, so that those without need stay 1."""


class _Row(NamedTuple):
    """One tensor, in powers of two."""

    above: float
    """How far its largest value is above what it may be."""
    below: float
    """How far its typical value is below."""
    powers: Mapping[int, int]
    """Place of a freedom -> the power that the tensor takes of it."""


def exponents_for(
    model: nn.Module, anatomy: Anatomy, sizes: Mapping[str, Size], gradients: Mapping[str, Size], limit: float
) -> dict[str, int]:
    """Exponents of two by the freedoms' names; those of 0 are left out.

    A freedom that is not exact (a fixed epsilon, a weight that is stored less 1) moves as little as the limit asks.
    """
    rounding = [freedom for freedom in anatomy.freedoms if _rounds(freedom, anatomy)]
    exact = [freedom for freedom in anatomy.freedoms if freedom not in rounding]
    chosen = {freedom.name: _nearest(freedom, sizes, limit) for freedom in rounding}
    fixed: dict[str, int] = defaultdict(int)
    powers: dict[str, dict[int, int]] = defaultdict(dict)
    for freedom in rounding:
        for name, power in _moved(freedom):
            fixed[name] += power * chosen[freedom.name]
    for place, freedom in enumerate(exact):
        for name, power in _moved(freedom):
            powers[name][place] = power
    scale = len(exact)
    rows = [_Row(0.0, -math.inf, {scale: 1})]  # the loss scale goes no higher
    forward = dict(sizes) | _weights(model, anatomy)
    if not any(forward[name].largest * 2.0 ** fixed[name] > limit for name in powers if name in forward):
        return {name: exponent for name, exponent in chosen.items() if exponent}
    linear = {path for path, module in model.named_modules() if isinstance(module, nn.Linear)}
    for name, size in forward.items():
        if name in powers and 0 < size.largest < math.inf:
            # Autocast keeps all else in fp32; it fits for those who call half(). The 2 is for rounding exponents.
            room = ROOM if name.partition(":")[0] in linear else 2.0
            rows.append(_row(size, fixed[name], limit / room, powers[name]))
    first = _first_names(model)
    for layer, size in gradients.items():
        if 0 < size.largest < math.inf:
            name = first.get(layer, layer)
            back = {place: -power for place, power in powers[name].items()} | {scale: 1}
            rows.append(_row(size, LOSS_SCALE - fixed[name], GRADIENTS, back))
    found = _least(rows, scale + 1)
    chosen |= {freedom.name: round(value) for freedom, value in zip(exact, found, strict=False)}
    return {name: exponent for name, exponent in chosen.items() if exponent}


def deciding(freedom: Freedom, sizes: Mapping[str, Size]) -> str:
    """The largest activation that depends on a freedom."""
    known = [name for name in freedom.activations if name in sizes]
    return max(known, key=lambda name: sizes[name].largest, default="")


def _moved(freedom: Freedom) -> list[tuple[str, int]]:
    return [*freedom.activations.items(), *freedom.parameters.items()]


def _weights(model: nn.Module, anatomy: Anatomy) -> dict[str, Size]:
    found: dict[str, Size] = {}
    for name in {name for freedom in anatomy.freedoms for name in freedom.parameters}:
        found[name] = Size()
        found[name].add(model.get_parameter(name))
    return found


def _first_names(model: nn.Module) -> dict[str, str]:
    """Of each name of a parameter the first: a tied one has several."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    return {name: first[id(parameter)] for name, parameter in model.named_parameters(remove_duplicate=False)}


def _row(size: Size, shift: int, most: float, powers: Mapping[int, int]) -> _Row:
    return _Row(math.log2(size.largest / most) + shift, LOW - math.log2(size.typical) - shift, powers)


def _least(rows: Sequence[_Row], count: int) -> list[float]:
    """The exponents at which the squares of what is too much and too little are least: Newton's steps, cut at need."""
    matrix = torch.zeros(len(rows), count, dtype=torch.float64)
    for index, row in enumerate(rows):
        for place, power in row.powers.items():
            matrix[index, place] = power
    highs = torch.tensor([row.above for row in rows], dtype=torch.float64)
    lows = torch.tensor([row.below for row in rows], dtype=torch.float64)

    def missing(at: Tensor) -> tuple[Tensor, Tensor]:
        moved = matrix @ at
        return (highs + moved).clamp_min(0), (lows - moved).clamp_min(0)

    def cost(at: Tensor) -> float:
        above, below = missing(at)
        return float((FATAL * above.square() + below.square()).sum() + NEAR * at.square().sum())

    at = torch.zeros(count, dtype=torch.float64)
    for _ in range(100):
        above, below = missing(at)
        slope = matrix.t() @ (FATAL * above - below) + NEAR * at
        active = FATAL * (above > 0) + (below > 0).double()
        curve = matrix.t() @ (active[:, None] * matrix) + NEAR * torch.eye(count, dtype=at.dtype)
        step, now = torch.linalg.solve(curve, slope), cost(at)
        while cost(at - step) > now and float(step.abs().amax()) > 1e-6:
            step = step / 2
        at = at - step
        if float(step.abs().amax()) < 1e-3:
            break
    return [float(value) for value in at]


def _rounds(freedom: Freedom, anatomy: Anatomy) -> bool:
    less_one = any(power > 0 and name in anatomy.offsets for name, power in freedom.parameters.items())
    return less_one or bool(freedom.norms and not freedom.setting)


def _nearest(freedom: Freedom, sizes: Mapping[str, Size], limit: float) -> int:
    """The exponent nearest to 0 with every activation within the limit."""
    least, most = -math.inf, math.inf
    for name, power in freedom.activations.items():
        size = sizes[name].largest if name in sizes else 0.0
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
