"""One real optimizer step, measured and undone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.inspection.bench.first_pass import FirstPass
from stayfinite.inspection.bench.keeping import Keeping

FEW = 8
"""With fewer values, all may be near 0 by chance, and a large relative update is meaningless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The effect of one optimizer step."""

    error: str = ""
    """Why it failed."""
    moved: frozenset[str] = frozenset()
    """Parameters with a changed value."""
    broken: frozenset[str] = frozenset()
    """Finite parameters with a finite gradient that are non-finite after the step."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """Update norm over weight norm, for nonzero weights of at least two dimensions with a nonzero gradient."""
    lost: float | None = None
    """Share of 16-bit values with a gradient that did not change; None if there are none."""


def one_update(optimizer: Optimizer, trainable: Mapping[str, nn.Parameter], first: FirstPass, kept: Keeping) -> Update:
    """Take the step of the first pass, measure it, and undo it."""
    if not first.worked:
        return Update(error="no gradients to step with")
    moved, broken, ratios = set(), set(), {}
    lost = held = 0
    with kept.undone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, p in trainable.items():
            gradient = first.gradients[name]
            p.grad = None if gradient is None else gradient.clone()
        try:
            optimizer.step()
        except Exception as error:  # an optimizer can raise anything
            return Update(error=f"{type(error).__name__}: {error}")
        for name, p in trainable.items():
            before, gradient = kept.copies[id(p)].to(p.device), first.gradients[name]
            changed = p.detach() != before
            if bool(changed.any()):
                moved.add(name)
            if not _finite(p) and _finite(before) and (gradient is None or _finite(gradient)):
                broken.add(name)
                continue
            if p.dtype in (torch.bfloat16, torch.float16) and gradient is not None and not gradient.is_sparse:
                gone, alive = rounded_away(before, p.detach(), gradient)
                held, lost = held + alive, lost + gone
            size = _norm(before)
            if p.dim() > 1 and p.numel() >= FEW and size > 0 and gradient is not None and _norm(gradient) > 0:
                ratios[name] = _norm(p.detach() - before) / size
    return Update(moved=frozenset(moved), broken=frozenset(broken), ratios=ratios, lost=lost / held if held else None)


def rounded_away(before: Tensor, after: Tensor, gradient: Tensor) -> tuple[int, int]:
    """Values with a gradient that a step left unchanged, and all values with one."""
    alive = gradient != 0
    return int((alive & (after == before)).sum()), int(alive.sum())


def _finite(tensor: Tensor) -> bool:
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    return bool(tensor.detach().isfinite().all())


def _norm(tensor: Tensor) -> float:
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    tensor = tensor.detach()
    return float(torch.linalg.vector_norm(tensor.abs() if tensor.is_complex() else tensor.float()))
