"""Torch's seams: what is stood in front of while a program is watched, and taken off again."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stayfinite.doctor.stand_ins import StandIns

if TYPE_CHECKING:
    from stayfinite.doctor.watcher import Watcher

LOSSES = (
    "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "mse_loss",
    "l1_loss", "smooth_l1_loss", "huber_loss",
)  # fmt: skip
NAMES = (
    "optimizer steps", "backward", "zero_grad", "schedules", "clipping", "GradScaler", "DataLoader", "module calls",
    "loss functions",
)  # fmt: skip
"""What is attached to, for people."""


class Seams:
    """Stands in front of torch's functions; ``off`` puts everything back."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._stand_ins = StandIns()

    def on(self) -> None:
        """Begin to watch."""
        watcher = self._watcher
        keep, put = self._stand_ins.keep, self._stand_ins.put
        keep(register_optimizer_step_pre_hook(watcher.before_step).remove)
        keep(register_optimizer_step_post_hook(watcher.after_step).remove)
        keep(torch.nn.modules.module.register_module_forward_pre_hook(watcher.before_call).remove)
        keep(torch.nn.modules.module.register_module_forward_hook(watcher.after_call).remove)
        put(Tensor, "backward", watcher.backward)
        put(torch.autograd, "backward", watcher.autograd_backward)
        put(Optimizer, "__init__", watcher.build_optimizer)
        put(Optimizer, "zero_grad", watcher.zero_grad)
        put(torch.nn.Module, "zero_grad", watcher.zero_grad)
        put(torch.nn.Module, "load_state_dict", watcher.load_state_dict)
        for kind in _with_step(LRScheduler):
            put(kind, "step", watcher.schedule_step)
        if "step" in vars(ReduceLROnPlateau) and not issubclass(ReduceLROnPlateau, LRScheduler):
            put(ReduceLROnPlateau, "step", watcher.schedule_step)
        put(torch.nn.utils, "clip_grad_norm_", watcher.clip)
        put(torch.nn.utils.clip_grad, "clip_grad_norm_", watcher.clip)
        put(torch.amp.GradScaler, "update", watcher.update_scale)
        put(torch.amp.GradScaler, "scale", watcher.scale_loss)
        put(DataLoader, "__iter__", watcher.begin_epoch)
        put(_BaseDataLoaderIter, "__next__", watcher.next_batch)
        for name in LOSSES:
            put(F, name, functools.partial(watcher.loss_function, name))
        for name in ("__eq__", "eq", "__sub__", "sub"):
            put(Tensor, name, functools.partial(watcher.pair, name))

    def off(self) -> None:
        """Put everything back."""
        self._stand_ins.off()


def _with_step(kind: type[Any]) -> list[type[Any]]:
    """A class and all below it that have a ``step`` of their own."""
    found = [kind] if "step" in vars(kind) else []
    for below in kind.__subclasses__():
        found += _with_step(below)
    return list(dict.fromkeys(found))
