"""A rank's own gradients, looked at before they are averaged with those of the others.

Afterwards one rank's NaN is everybody's. Both ways of averaging offer a place to look from: DDP a communication hook,
FSDP2 its reduce-scatter. The look is one norm of what is about to be sent, on the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class LocalGradients:
    """Whether this rank's own gradients of the present step are finite, as far as they can be seen."""

    def __init__(self, model: nn.Module) -> None:
        self._bad: Tensor | None = None
        if isinstance(model, nn.parallel.DistributedDataParallel):
            self._hook_into_ddp(model)
        else:
            self._hook_into_fsdp(model)

    def take(self) -> Tensor | None:
        """1 if they were not finite, 0 if they were; None where nothing could be seen. The next step starts afresh."""
        bad, self._bad = self._bad, None
        return bad

    def _look(self, sent: Tensor) -> None:
        norm = torch.linalg.vector_norm(sent.detach(), dtype=torch.float32)
        bad = (~torch.isfinite(norm)).to(torch.float64)
        self._bad = bad if self._bad is None else torch.maximum(self._bad, bad)

    def _hook_into_ddp(self, model: nn.parallel.DistributedDataParallel) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        def look(bucket: Any) -> torch.futures.Future[Tensor]:
            self._look(bucket.buffer())
            return allreduce_hook(model.process_group, bucket)

        try:
            # A lambda, because torch compares annotations, which are strings here, with its own classes.
            model.register_comm_hook(None, lambda _state, bucket: look(bucket))
        except RuntimeError:
            # The loop has a hook of its own; the guilty rank is then known by its loss alone.
            return

    def _hook_into_fsdp(self, model: nn.Module) -> None:
        try:
            from torch.distributed.fsdp import FSDPModule
            from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
        except ImportError:
            # A torch without this seam; the guilty rank is then known by its loss alone.
            return
        look = self._look

        class LookingReduceScatter(DefaultReduceScatter):
            def __call__(
                self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
            ) -> Any:
                look(input_tensor)
                return super().__call__(output_tensor, input_tensor, group, op, async_op)

        for module in model.modules():
            if isinstance(module, FSDPModule) and _sends_as_usual(module, DefaultReduceScatter):
                module.set_custom_reduce_scatter(LookingReduceScatter())


def _sends_as_usual(module: Any, usual: type) -> bool:
    """Whether the module has one group of parameters and nobody has changed how its gradients are sent."""
    groups = getattr(module._get_fsdp_state(), "_fsdp_param_groups", [])
    return len(groups) == 1 and type(groups[0]._reduce_scatter_comm) is usual
