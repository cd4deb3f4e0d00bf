"""The numbers measured at one step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What was measured at one optimizer step, before clipping.

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
    """Losses that were named by the caller, logged apart so that the guilty one is known."""

    named: Mapping[str, float] = field(default_factory=dict)
    """Signals that the caller has measured (`kl`, `entropy`, `reward`, ...): judged, told, and never a reason to refuse
    the step. With several ranks those of this rank."""

    batch: int = 0
    """Number of the last batch that went into the step, counted from 1 in ``backward`` calls."""

    batch_shape: str = ""
    """The last batch in words (`input_ids int64[8, 128], ...`), known when it went through ``guard.forward``."""

    bad_parameters: tuple[str, ...] = ()
    """The first few parameters, in the model's order, whose gradient is not finite."""

    bad_count: int = 0
    """How many parameters have a gradient that is not finite."""

    bad_ranks: tuple[int, ...] = ()
    """With several ranks those whose own loss or gradients were not finite, before gradients were averaged."""

    mismatch: str = ""
    """Where the step was run again and came out otherwise: how, and on which machine; ``bad_ranks`` are those ranks."""

    silent: int = 0
    """Bit i is set when parameter i has no gradient or one that is exactly zero."""

    parameters: int = 0
    """How many parameters the optimizer holds."""

    @property
    def finite(self) -> bool:
        """Whether the loss and the gradients are finite."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)
