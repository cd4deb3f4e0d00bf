"""Telling a gradient that is zero for good from one that is zero at the start on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.first_pass import first_pass

NUDGE = 0.02
"""Standard deviation of what is added to every trainable value."""
SHAKE = 1.0
"""The same, where rows are to be sent another way."""


def without_gradient_at_all(bench: Bench, zero: Sequence[str]) -> list[str]:
    """Those of these parameters whose gradient is exactly zero also when no weight is.

    LoRA's second matrix, gates and last layers start at zero, so that what lies before them gets no gradient in the
    first step and does in the next. With every weight a little off, such gradients are there.
    """
    with bench.kept.undone():
        nudge(bench)
        again = first_pass(bench.model, bench.step, bench.scaler)
    if not again.worked:
        return []
    matrices = [name for name in zero if bench.trainable[name].dim() > 1]
    # A bias before a norm, or that of the keys in attention, has a gradient of zero by its nature.
    return [name for name in matrices if (g := again.gradients[name]) is not None and not bool((g != 0).any())]


def routed_past(bench: Bench, none: Sequence[str]) -> list[str]:
    """Those of these parameters that lie beside others which get a gradient once weights are shaken: experts.

    Which of the members of a list are at work depends on the rows, then, and more rows will reach the rest. Members
    that a loop leaves out stay without a gradient whatever the weights are.
    """
    if isinstance(bench.model, nn.parallel.DistributedDataParallel):
        return []  # there a part that no row was sent to stops the run
    beside = {name: held for name in none if (held := _list_around(bench.model, name))}
    if not beside:
        return []
    with bench.kept.undone():
        nudge(bench, SHAKE)
        again = first_pass(bench.model, bench.step, bench.scaler)
    reached = {beside[name] for name in beside if again.gradients.get(name) is not None}
    return [name for name in none if beside.get(name) in reached]


def _list_around(model: nn.Module, name: str) -> str:
    """The innermost list or dictionary of modules that holds a parameter."""
    path = name.rpartition(".")[0]
    while path:
        path = path.rpartition(".")[0]
        if isinstance(model.get_submodule(path), nn.ModuleList | nn.ModuleDict):
            return path or "."
    return ""


def nudge(bench: Bench, size: float = NUDGE) -> None:
    """Move every trainable value a little."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in bench.trainable.values():
            noise = torch.randn(p.shape, generator=generator) * size
            p.add_(noise.to(device=p.device, dtype=p.dtype))
