"""Check a rank's own gradients before they are averaged.

After averaging, one rank's NaN is on all ranks. DDP allows a communication hook, FSDP2 a custom reduce-scatter. The
check is one norm of the buffer to be sent, on the device.

torch cannot remove these hooks. They are installed once per model, serve one guard at a time, and only send if there is
none.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

Look = Callable[[Tensor], None]


class Lookout:
    """A hook point on one model, and the guard that uses it."""

    def __init__(self) -> None:
        self.look: Look | None = None

    def show(self, sent: Tensor) -> None:
        """Pass a buffer that is about to be sent."""
        if self.look is not None:
            self.look(sent)


_LOOKOUTS: WeakKeyDictionary[nn.Module, Lookout] = WeakKeyDictionary()
"""Installed hook points by DDP or FSDP module."""


class LocalGradients:
    """Whether this rank's own gradients of the current step are finite, as far as they are visible."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._bad: Tensor | None = None
        self._lookouts: list[Lookout] = []
        for model in models:
            if isinstance(model, nn.parallel.DistributedDataParallel):
                self._hook_into_ddp(model)
            else:
                self._hook_into_fsdp(model)

    def take(self) -> Tensor | None:
        """1 if they were not finite, 0 if they were; None if unknown. Resets for the next step."""
        bad, self._bad = self._bad, None
        return bad

    def stop(self) -> None:
        """Stop checking; gradients are sent as usual."""
        for lookout in self._lookouts:
            if lookout.look == self._look:
                lookout.look = None

    def _look(self, sent: Tensor) -> None:
        norm = torch.linalg.vector_norm(sent.detach(), dtype=torch.float32)
        bad = (~torch.isfinite(norm)).to(torch.float64)
        self._bad = bad if self._bad is None else torch.maximum(self._bad, bad)

    def _stand_at(self, module: nn.Module, put_up: Callable[[nn.Module, Lookout], None]) -> None:
        if module not in _LOOKOUTS:
            put_up(module, lookout := Lookout())
            _LOOKOUTS[module] = lookout
        _LOOKOUTS[module].look = self._look
        self._lookouts.append(_LOOKOUTS[module])

    def _hook_into_ddp(self, model: nn.parallel.DistributedDataParallel) -> None:
        try:
            self._stand_at(model, _put_on_ddp)
        except RuntimeError:
            # The loop has its own hook; the bad rank is then identified by its loss alone.
            return

    def _hook_into_fsdp(self, model: nn.Module) -> None:
        try:
            from torch.distributed.fsdp import FSDPModule
            from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
        except ImportError:
            # This torch has no such hook; the bad rank is then identified by its loss alone.
            return

        class LookingReduceScatter(DefaultReduceScatter):
            def __init__(self, lookout: Lookout) -> None:
                super().__init__()
                self._lookout = lookout

            def __call__(
                self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
            ) -> Any:
                self._lookout.show(input_tensor)
                return super().__call__(output_tensor, input_tensor, group, op, async_op)

        def put_on_fsdp(module: Any, lookout: Lookout) -> None:
            module.set_custom_reduce_scatter(LookingReduceScatter(lookout))

        for module in model.modules():
            if isinstance(module, FSDPModule) and (
                module in _LOOKOUTS or _sends_as_usual(module, DefaultReduceScatter)
            ):
                self._stand_at(module, put_on_fsdp)


def _put_on_ddp(model: Any, lookout: Lookout) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    group = model.process_group

    def look(bucket: Any) -> torch.futures.Future[Tensor]:
        lookout.show(bucket.buffer())
        return allreduce_hook(group, bucket)

    # A lambda, because torch compares annotations with its own classes.
    model.register_comm_hook(None, lambda _state, bucket: look(bucket))


def _sends_as_usual(module: Any, usual: type) -> bool:
    """Whether the module has one parameter group with the default reduce-scatter."""
    groups = getattr(module._get_fsdp_state(), "_fsdp_param_groups", [])
    return len(groups) == 1 and type(groups[0]._reduce_scatter_comm) is usual
