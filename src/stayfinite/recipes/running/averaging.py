"""Averaged weights (EMA), which are often better than the last ones."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Average(nn.Module):
    """A copy of a model whose weights follow the trained ones slowly, without ever waiting for the device.

    torch's ``AveragedModel`` asks the device at every update how many there were, so that the host cannot run ahead.

    Arguments:
        model: what is trained.
        decay: 0.999 averages over about a thousand steps. The first updates follow faster.
    """

    steps: Tensor
    """The last step that was followed."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay = decay
        # On the host, so that asking for it waits for nobody; a buffer, so that checkpoints keep it.
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Follow the model after this step, counted from 1; one that was followed already is not followed again.

        A checkpoint is written within a step, before the average can follow it. So a run that was resumed calls this
        once with the step that it was resumed after.
        """
        if step <= int(self.steps):
            return
        self.steps.fill_(step)
        share = 1.0 - min(self._decay, (1 + step) / (10 + step))
        floats: tuple[list[Tensor], list[Tensor]] = ([], [])
        for own, new in zip(_tensors(self.module), _tensors(model), strict=True):
            if own.is_floating_point():
                floats[0].append(own)
                floats[1].append(new.detach())
            else:
                own.copy_(new, non_blocking=True)
        if floats[0]:
            torch._foreach_lerp_(*floats, share)


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
