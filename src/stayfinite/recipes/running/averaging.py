"""Averaged weights (EMA), which are often better than the last ones."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Average(nn.Module):
    """A copy of a model whose weights follow the trained ones slowly, without ever waiting for the device.

    torch's ``AveragedModel`` asks the device at every update how many there were, so that the host cannot run ahead.

    Arguments:
        model: what is trained, where it is trained: its weights are found once.
        decay: 0.999 averages over about a thousand steps. The first updates follow faster.
    """

    steps: Tensor
    """The last step that was followed."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay = decay
        # Found once: to look for the tensors of a model at every step takes longer than to average them.
        pairs = list(zip(_tensors(self.module), _tensors(model), strict=True))
        floats = [(own, new) for own, new in pairs if own.is_floating_point()]
        self._averages, self._weights = [own for own, _ in floats], [new for _, new in floats]
        self._others = [(own, new) for own, new in pairs if not own.is_floating_point()]
        # On the host, so that asking for it waits for nobody; a buffer, so that checkpoints keep it.
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Follow the model after this step, counted from 1; one that was followed already is not followed again.

        A checkpoint is written within a step, before the average can follow it. So a run that was resumed calls this
        once with the step that it was resumed after.
        """
        if step <= int(self.steps):
            return
        self.steps.fill_(step)
        share = 1.0 - min(self._decay, (1 + step) / (10 + step))
        for own, new in self._others:
            own.copy_(new, non_blocking=True)
        if self._averages:
            torch._foreach_lerp_(self._averages, self._weights, share)


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
