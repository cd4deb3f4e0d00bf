"""The numbers measured at one step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Measurements of one optimizer step, before clipping.

    Examples:
        >>> guard.step(compute_loss(model, batch))
        >>> guard.decisions[-1].signals.lr
        0.001
    """

    step: int
    """Number of the step, counted from 1 over refused steps too."""

    loss: float
    """The loss of the step, summed over its ``backward`` calls."""

    grad_norm: float
    """2-norm of all gradients together, unscaled and not yet clipped."""

    lr: float | None = None
    """Largest learning rate of the optimizer's groups."""

    loss_scale: float | None = None
    """Scale of the fp16 scaler at this step; None without one."""

    parts: Mapping[str, float] = field(default_factory=dict)
    """Loss terms named by the caller, to identify a bad one."""

    named: Mapping[str, float] = field(default_factory=dict)
    """Signals measured by the caller (`kl`, `entropy`, `reward`, ...): judged and reported, but never refused. With
    several ranks, those of this rank.
    """

    batch: int = 0
    """Number of the last batch that went into the step, counted from 1 in ``backward`` calls."""

    batch_shape: str = ""
    """The last batch in words (`input_ids int64[8, 128], ...`), known when it went through ``guard.forward``."""

    bad_parameters: tuple[str, ...] = ()
    """First few parameters, in model order, with a non-finite gradient."""

    bad_count: int = 0
    """Number of parameters with a non-finite gradient."""

    bad_ranks: tuple[int, ...] = ()
    """With several ranks, those with a non-finite loss or gradient before averaging."""

    mismatch: str = ""
    """If a re-run of the step differed: how, and on which machine. ``bad_ranks`` are those ranks."""

    silent: int = 0
    """Bit i is set if the gradient of parameter i is None or exactly zero."""

    parameters: int = 0
    """Number of parameters in the optimizer."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)
