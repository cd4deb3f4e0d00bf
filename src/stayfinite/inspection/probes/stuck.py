"""Tell permanently zero gradients from those that are zero only at the start."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.first_pass import first_pass

NUDGE = 0.02  # standard deviation of the noise added to trainable values
SHAKE = 1.0  # the same, to change the routing of rows


def without_gradient_at_all(bench: Bench, zero: Sequence[str]) -> list[str]:
    """Parameters whose gradient stays exactly zero after all weights are perturbed.

    LoRA's second matrix, gates and last layers start at zero, so what precedes them gets a gradient only from the
    second step on. With slightly perturbed weights it gets one at once.
    """
    with bench.kept.undone():
        nudge(bench)
        again = first_pass(bench.model, bench.step, bench.scaler)
    if not again.worked:
        return []
    matrices = [name for name in zero if bench.trainable[name].dim() > 1]
    # A bias before a norm, and the key bias of attention, have a zero gradient by construction.
    return [name for name in matrices if (g := again.gradients[name]) is not None and not bool((g != 0).any())]


def routed_past(bench: Bench, none: Sequence[str]) -> list[str]:
    """Parameters next to others that get a gradient once weights are perturbed: experts.

    Then the rows decide which list members are used, and more rows will reach the rest. Members that a loop omits never
    get a gradient.
    """
    if isinstance(bench.model, nn.parallel.DistributedDataParallel):
        return []  # under DDP an unused part stops the run
    beside = {name: held for name in none if (held := _list_around(bench.model, name))}
    if not beside:
        return []
    with bench.kept.undone():
        nudge(bench, SHAKE)
        again = first_pass(bench.model, bench.step, bench.scaler)
    reached = {beside[name] for name in beside if again.gradients.get(name) is not None}
    return [name for name in none if beside.get(name) in reached]


def _list_around(model: nn.Module, name: str) -> str:
    """The innermost ModuleList or ModuleDict that holds a parameter."""
    path = name.rpartition(".")[0]
    while path:
        path = path.rpartition(".")[0]
        if isinstance(model.get_submodule(path), nn.ModuleList | nn.ModuleDict):
            return path or "."
    return ""


def nudge(bench: Bench, size: float = NUDGE) -> None:
    """Perturb every trainable value slightly."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in bench.trainable.values():
            noise = torch.randn(p.shape, generator=generator) * size
            p.add_(noise.to(device=p.device, dtype=p.dtype))
