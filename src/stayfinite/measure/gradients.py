"""Gradient norms, one fused pass per device and dtype, and the clipping that uses them.

With CUDA and Triton, one read of all gradients yields more than norms; see ``one_pass.py``. The torch code here is its
reference and the fallback.
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
"""As in torch.nn.utils.clip_grad_norm_, which is followed bitwise except for half-precision gradients: their norm is
summed in float32 here, in half precision there.
"""


@dataclass(frozen=True, slots=True)
class GradientNorms:
    """Measured raw gradients of one step."""

    indices: tuple[int, ...]
    """Roster indices of parameters with a gradient; row i of ``norms`` belongs to ``indices[i]``."""

    groups: tuple[list[Tensor], ...]
    """The gradients by device and dtype (values only for sparse ones)."""

    norms: Tensor
    """2-norm of each gradient, shape [len(indices)], on one device."""

    total: Tensor
    """2-norm of all gradients, shape []."""

    spread: bool = False
    """Whether any gradient is this rank's shard of a distributed one."""

    scattered: tuple[Tensor, ...] = ()
    """Values of uncoalesced sparse gradients. ``groups`` has their coalesced values; the optimizer reads these, so they
    are clipped too.
    """

    facts: Facts | None = None
    """Further statistics of the same read, one row per index; None if only norms were measured."""

    told: bool = False
    """Whether an engine that owns the gradients reported the total of all ranks; nothing else is known then."""


def told_gradients(total: Tensor) -> GradientNorms:
    """Gradients owned by an engine that reports only their norm."""
    return GradientNorms((), (), total.new_zeros(0), total.detach().reshape(()), told=True)


def measure_gradients(roster: Roster, fused: Fused | None = None) -> GradientNorms:
    """Norms of all gradients, without a sync. Half-precision gradients are summed in float32.

    Arguments:
        fused: kernels to use if possible; None for torch alone.
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
    """Clip the gradients in place, on the device.

    Arguments:
        max_norm: as for ``clip_grad_norm_``; None for no clipping.
        limit: further limit on the norm of an unusual step.
        divisor: minimum divisor for an unusual step, if known only on the device.
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

    Not if some are float64, sparse, or sharded.
    """
    if measured.spread or measured.scattered:
        return False
    # The kernels only read such dtypes.
    return measured.facts is not None or {grad.dtype for group in measured.groups for grad in group} <= READABLE


@dataclass(frozen=True, slots=True)
class _Found:
    """Existing gradients, as in :class:`GradientNorms`."""

    indices: tuple[int, ...]
    groups: tuple[list[Tensor], ...]
    spread: bool = False
    scattered: tuple[Tensor, ...] = ()
    addressable: bool = True
    """Whether all data is at ``data_ptr``; false for wrapper subclasses."""


def _plain_ones(roster: Roster) -> _Found | None:
    """Fast path: all gradients, if every parameter has a plain dense one."""
    gradients = list(map(_gradient, roster.parameters))
    if set(map(type, gradients)) != PLAIN or any(map(_is_sparse, gradients)):
        return None
    places = tuple(roster.places.values())
    if len(places) == 1:
        return _Found(places[0], (gradients,))
    groups = tuple(list(map(gradients.__getitem__, members)) for members in places)
    return _Found(tuple(chain.from_iterable(places)), groups)


def _any_kind(roster: Roster) -> _Found:
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
                own = own_part(grad)
                spread = spread or own is not grad
                addressable = addressable and type(own) in (Tensor, nn.Parameter)
                group.append(own)
        if group:
            groups.append(group)
    return _Found(tuple(indices), tuple(groups), spread, tuple(scattered), addressable)


def own_part(tensor: Tensor) -> Tensor:
    """This rank's shard of a DTensor; any other tensor unchanged."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else cast(Tensor, to_local())


def _order_of_torch(groups: tuple[list[Tensor], ...]) -> list[int]:
    # Sum in the order of clip_grad_norm_, or the last bit may differ.
    first: list[Tensor | None] = [group[0] for group in groups]
    of_torch = _group_tensors_by_device_and_dtype([first], with_indices=True)
    return [place for _, places in of_torch.values() for place in places]
