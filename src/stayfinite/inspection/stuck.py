"""Telling a gradient that is zero for good from one that is zero at the start on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stayfinite.inspection.bench import Bench
from stayfinite.inspection.first_pass import first_pass

NUDGE = 0.02
"""Standard deviation of what is added to every trainable value."""


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


def nudge(bench: Bench) -> None:
    """Move every trainable value a little."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in bench.trainable.values():
            noise = torch.randn(p.shape, generator=generator) * NUDGE
            p.add_(noise.to(device=p.device, dtype=p.dtype))
