"""Gradients to norms, one fused pass per device and dtype; and the clip that uses them.

On a CUDA device with Triton one read of all gradients yields more than norms; see ``one_pass.py``. What is done here
with torch alone is the reference for it, and what everything else falls back to.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

from stayfinite.measure.fused import Fused
from stayfinite.measure.one_pass import READABLE, Facts
from stayfinite.measure.roster import Roster

HALF = (torch.float16, torch.bfloat16)
PLAIN = {Tensor}
_gradient, _is_sparse = attrgetter("grad"), attrgetter("is_sparse")
CLIP_EPS = 1e-6
"""As in torch.nn.utils.clip_grad_norm_, whose arithmetic is followed to the last bit except for half-precision
gradients: torch sums their norm in their own precision, here it is summed in float32."""


@dataclass(frozen=True, slots=True)
class GradientNorms:
    """The raw gradients of one step, measured."""

    indices: tuple[int, ...]
    """Which parameters of the roster have a gradient; row i of ``norms`` belongs to ``indices[i]``."""

    groups: tuple[list[Tensor], ...]
    """Those gradients (the values of the sparse ones), by device and dtype."""

    norms: Tensor
    """2-norm of each gradient, shape [len(indices)], on one device."""

    total: Tensor
    """2-norm of all of them together, shape []."""

    spread: bool = False
    """Whether any of them is this rank's part of a gradient that is spread over ranks."""

    scattered: tuple[Tensor, ...] = ()
    """Values of sparse gradients in which a row may occur several times: in ``groups`` they are added up, and it is
    these that the optimizer reads, and that are clipped with the others."""

    facts: Facts | None = None
    """What else was seen in the same read; a row for each of ``indices``. None where only norms were taken."""

    told: bool = False
    """Whether an engine that keeps the gradients has told the total of all ranks; nothing else is known then."""


def told_gradients(total: Tensor) -> GradientNorms:
    """Gradients that an engine keeps, of which it tells the norm."""
    return GradientNorms((), (), total.new_zeros(0), total.detach().reshape(()), told=True)


def measure_gradients(roster: Roster, fused: Fused | None = None) -> GradientNorms:
    """Norms of all gradients, without waiting for the device. Half-precision gradients are summed in float32.

    Arguments:
        roster: whose gradients.
        fused: the kernels to read them with, as far as they can; None for torch alone.
    """
    found = _plain_ones(roster) or _any_kind(roster)
    if not found.groups:
        nothing = torch.zeros(0, device=roster.device)
        return GradientNorms((), (), nothing, nothing.sum())
    if fused is not None and found.addressable and (facts := fused.look(found.groups)) is not None:
        return GradientNorms(
            found.indices, found.groups, facts.norms, facts.total, found.spread, found.scattered, facts
        )
    by_group: list[list[Tensor]] = [
        list(torch._foreach_norm(group, 2.0, torch.float32 if group[0].dtype in HALF else None))
        for group in found.groups
    ]
    if len(roster.places) > 1:
        home = roster.device
        by_group = [[norm.to(home, non_blocking=True) for norm in norms] for norms in by_group]
    together = torch.stack(list(chain.from_iterable(by_group)))
    summed = together
    if len(by_group) > 1:
        summed = torch.stack(list(chain.from_iterable(by_group[place] for place in _order_of_torch(found.groups))))
    total = torch.linalg.vector_norm(summed, 2.0)
    return GradientNorms(found.indices, found.groups, together, total, found.spread, found.scattered)


def clip_gradients(
    measured: GradientNorms, max_norm: float | None, *, limit: float | None = None, divisor: Tensor | None = None
) -> None:
    """Scale the gradients down to ``max_norm`` where they are above it, on the device, in place.

    Arguments:
        measured: the gradients and their norm.
        max_norm: what ``clip_grad_norm_`` would be given; None for no clipping.
        limit: the norm that an unusual step is limited to besides.
        divisor: what an unusual step's gradients are to be divided by at least, where only the device knows.
    """
    factor = torch.ones_like(measured.total)
    if max_norm is not None:
        factor = torch.clamp(max_norm / (measured.total + CLIP_EPS), max=1.0)
    if limit is not None:
        factor = torch.minimum(factor, limit / measured.total)
    if divisor is not None:
        factor = torch.minimum(factor, 1.0 / divisor.to(factor.dtype))
    for group in (*measured.groups, *([values] for values in measured.scattered)):
        torch._foreach_mul_(group, factor.to(group[0].device, non_blocking=True))


def can_be_divided(measured: GradientNorms) -> bool:
    """Whether an optimizer that divides these gradients by a float32 is as exact as :func:`clip_gradients`.

    Not where some are float64, sparse, or spread over ranks.
    """
    if measured.spread or measured.scattered:
        return False
    # Where the kernels have read them, their dtypes are known.
    return measured.facts is not None or {grad.dtype for group in measured.groups for grad in group} <= READABLE


@dataclass(frozen=True, slots=True)
class _Found:
    """The gradients that are there, as in :class:`GradientNorms`."""

    indices: tuple[int, ...]
    groups: tuple[list[Tensor], ...]
    spread: bool = False
    scattered: tuple[Tensor, ...] = ()
    addressable: bool = True
    """Whether the numbers of all are where ``data_ptr`` says; a tensor that only wraps others has none there."""


def _plain_ones(roster: Roster) -> _Found | None:
    """The gradients, if every parameter has one and all are plain and dense: hundreds of them in few instructions."""
    gradients = list(map(_gradient, roster.parameters))
    if set(map(type, gradients)) != PLAIN or any(map(_is_sparse, gradients)):
        return None
    places = tuple(roster.places.values())
    if len(places) == 1:
        return _Found(places[0], (gradients,))
    groups = tuple(list(map(gradients.__getitem__, members)) for members in places)
    return _Found(tuple(chain.from_iterable(places)), groups)


def _any_kind(roster: Roster) -> _Found:
    """The gradients, one by one."""
    indices: list[int] = []
    groups: list[list[Tensor]] = []
    scattered: list[Tensor] = []
    spread, addressable = False, True
    for members in roster.places.values():
        group: list[Tensor] = []
        for index in members:
            grad = roster.parameters[index].grad
            if grad is None:
                continue
            indices.append(index)
            if grad.is_sparse:
                group.append(grad.coalesce()._values())
                if not grad.is_coalesced():
                    scattered.append(grad._values())
            elif type(grad) is Tensor:
                group.append(grad)
            else:
                own = _local(grad)
                spread = spread or own is not grad
                addressable = addressable and type(own) in (Tensor, nn.Parameter)
                group.append(own)
        if group:
            groups.append(group)
    return _Found(tuple(indices), tuple(groups), spread, tuple(scattered), addressable)


def _local(grad: Tensor) -> Tensor:
    # Of a gradient that is spread over ranks (a DTensor) each rank measures and clips its own part.
    to_local = getattr(grad, "to_local", None)
    return grad if to_local is None else cast(Tensor, to_local())


def _order_of_torch(groups: tuple[list[Tensor], ...]) -> list[int]:
    # A sum in another order may end in another bit, and clip_grad_norm_ takes devices and dtypes in its own.
    first: list[Tensor | None] = [group[0] for group in groups]
    of_torch = _group_tensors_by_device_and_dtype([first], with_indices=True)
    return [place for _, places in of_torch.values() for place in places]
