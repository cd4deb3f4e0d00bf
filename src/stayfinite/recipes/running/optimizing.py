"""Optimizer, learning-rate schedule, averaged weights."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def optimizer_for(
    model: nn.Module, *, lr: float, weight_decay: float, device: torch.device, relative: bool = False
) -> Optimizer:
    """AdamW, fused if possible. Norms and biases are not decayed.

    Arguments:
        relative: scale the learning rate by each weight's size, like Adafactor, which T5 was trained with. T5's initial
            weights differ in size by a factor of 200 (embeddings 1, queries 1/sqrt(d_model d_kv)), so no single rate
            suits all of them.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            decay = weight_decay if parameter.ndim >= 2 else 0.0
            rate = lr * _size(parameter) if relative else lr
            groups.setdefault((rate, decay), []).append(parameter)
    listed = [{"params": found, "lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()]
    return torch.optim.AdamW(listed, lr=lr, betas=(0.9, 0.98), fused=device.type in ("cuda", "cpu"))


def _size(parameter: nn.Parameter) -> float:
    """Root mean square rounded to a power of two, so that similar weights share a group."""
    size = float(parameter.detach().float().square().mean().sqrt())
    return 2.0 ** round(math.log2(size)) if math.isfinite(size) and size > 1e-3 else 1e-3


def steps_of(batches: int, accumulation: int, epochs: int) -> int:
    """Optimizer steps of a training; a smaller last group of an epoch counts as one."""
    return max(1, -(-batches // accumulation) * epochs)


def warmup_of(config: Any, steps: int, usual: int = 0) -> int:
    """Warmup steps of these settings: --warmup-steps, else the share --warmup-ratio, else the usual number."""
    if config.warmup_steps is not None:
        return int(config.warmup_steps)
    return usual if config.warmup_ratio is None else int(config.warmup_ratio * steps)


def schedule_for(optimizer: Optimizer, shape: str, *, warmup: int, steps: int) -> LambdaLR:
    """Linear warmup from above 0, then decay of the given shape."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        return decay(shape, done, math.sqrt(max(1, warmup) / max(1, step)))

    return StepSchedule(optimizer, factor)


def decay(shape: str, done: float, inverse_sqrt: float) -> float:
    """Share of the peak rate when this share of the decay is done; constant for other shapes.

    Arguments:
        inverse_sqrt: the share for that shape, which knows no end.
    """
    shares = {"linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done)), "inverse_sqrt": inverse_sqrt}
    return shares.get(shape, 1.0)


class StepSchedule(LambdaLR):
    """A schedule over steps that can resume from one over time, after --minutes was dropped."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        taken = state_dict.get("taken")
        super().load_state_dict(self.state_dict() | ({"last_epoch": int(taken)} if taken is not None else state_dict))


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
