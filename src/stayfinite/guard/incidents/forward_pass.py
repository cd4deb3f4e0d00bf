"""``guard.forward``: the forward pass in the guard's precision, recorded for a re-run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.guard.incidents.passes import Passes
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.telling.groups import Described, Groups
from stayfinite.measure.loss_collector import LossCollector


class ForwardPass:
    """Runs the forward function of the guard.

    Arguments:
        function: ``forward(batch) -> loss``, or None.
        collector: told which batch the next loss comes from.
        describe: describes each row of a batch, for incidents.
        groups: counts batches by the groups of their rows.
    """

    def __init__(
        self,
        function: Callable[[Any], Tensor] | None,
        precision: PrecisionControl,
        collector: LossCollector,
        passes: Passes,
        describe: Callable[[Any], Described] | None = None,
        groups: Groups | None = None,
    ) -> None:
        self.function = function
        self.describe = describe
        self._groups = groups
        self._precision, self._collector, self._passes = precision, collector, passes

    def __call__(self, batch: Any) -> Tensor:
        """Return the loss of a batch.

        Raises:
            UsageError: there is no forward function.
        """
        if self.function is None:
            raise UsageError(
                "guard.forward() needs a forward function",
                fix="build it with Guard(..., forward=lambda batch: model(**batch).loss), or compute the loss yourself",
            )
        self._collector.see(batch)
        # Evaluation is not part of a step.
        if self._groups is not None and torch.is_grad_enabled():
            self._groups.see(batch)
        with self._precision.autocast():
            began = self._passes.begin(batch)
            try:
                loss = self.function(batch)
            except BaseException:
                self._passes.take_back(began)
                raise
        self._passes.end(began, loss)
        return loss
