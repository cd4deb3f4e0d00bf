"""Exponential moving average of weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Average(nn.Module):
    """An EMA copy of a model that never syncs with the device.

    torch's ``AveragedModel`` reads its update count from the device at every update.

    Arguments:
        model: the trained model, already on its device.
        decay: 0.999 averages over about a thousand steps. Early updates follow faster.
    """

    steps: Tensor
    """The last step averaged."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay = decay
        # Collected once: walking a model at every step takes longer than averaging.
        pairs = list(zip(_tensors(self.module), _tensors(model), strict=True))
        floats = [(own, new) for own, new in pairs if own.is_floating_point()]
        self._averages, self._weights = [own for own, _ in floats], [new for _, new in floats]
        self._others = [(own, new) for own, new in pairs if not own.is_floating_point()]
        # On the CPU, so that reading it does not sync; a buffer, so that checkpoints keep it.
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Average the weights after this step, counted from 1. Repeated steps are ignored.

        A checkpoint is written within a step, before its update. So call this once after a resume, with the resumed
        step.
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
