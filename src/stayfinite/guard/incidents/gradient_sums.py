"""Checksums of this rank's own gradients, summed as backward produces them.

This is before they are averaged over ranks and added to those of earlier batches, so a re-run is compared with one
rank's own work, and no gradients need to be kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from stayfinite.measure.checksum import checksum
from stayfinite.state.shards import is_spread


class GradientSums:
    """Hooks the gradients of some parameters until closed.

    Arguments:
        parameters: leaves of the graph; those of ``fully_shard`` are hooked on the gathered weights.
        model: its modules gather them.
    """

    def __init__(self, parameters: Sequence[Tensor], model: nn.Module) -> None:
        self._parameters = parameters
        self._sums: list[Tensor | None] = [None] * len(parameters)
        self._handles = [
            each.register_hook(partial(self._hear, place))
            for place, each in enumerate(parameters)
            if each.requires_grad
        ]
        places = {id(each): place for place, each in enumerate(parameters) if is_spread(each)}
        self._gathered: dict[int, Tensor] = {}
        """Hooked gathered weights by id: they are the same objects in every pass."""
        for module in sharding_modules(model) if places else ():
            owners = [
                (owner, name, places[id(each)])
                for owner in module.modules()
                for name, each in owner._parameters.items()
                if id(each) in places
            ]
            listen = torch.compiler.disable(partial(self._listen, owners))
            self._handles.append(module.register_forward_pre_hook(lambda *_, listen=listen: listen()))

    def _listen(self, owners: Sequence[tuple[nn.Module, str, int]]) -> None:
        """Hook the gathered weights of a module that is about to compute."""
        for owner, name, place in owners:
            whole = owner._parameters[name]
            if whole is None or is_spread(whole) or id(whole) in self._gathered or not whole.requires_grad:
                continue
            self._gathered[id(whole)] = whole
            self._handles.append(whole.register_hook(partial(self._hear, place)))

    def _hear(self, place: int, gradient: Tensor) -> None:
        own = checksum(gradient)
        before = self._sums[place]
        self._sums[place] = own if before is None else before + own

    def take(self) -> tuple[int, ...]:
        """Sums since the last call; 0 for none. Syncs with the device."""
        sums, self._sums = self._sums, [None] * len(self._parameters)
        summed = [(place, each) for place, each in enumerate(sums) if each is not None]
        bits = [0] * len(sums)
        for device in {each.device for _, each in summed}:
            there = [(place, each) for place, each in summed if each.device == device]
            numbers = torch.stack([each for _, each in there]).tolist()
            for (place, _), number in zip(there, numbers, strict=True):
                bits[place] = number
        return tuple(bits)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()


def sharding_modules(model: nn.Module) -> list[nn.Module]:
    """Modules wrapped by torch's ``fully_shard``."""
    from torch.distributed.fsdp import FSDPModule  # loads sympy, which changes the warning filters

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextmanager
def let_go_at_once(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Context in which a gradient is freed once it is complete, so a second set takes no memory.

    Earlier gradients and post-accumulate hooks are restored at the end.
    """
    kept = [(each, each.grad, each._post_accumulate_grad_hooks) for each in parameters if each.requires_grad]
    for each, _, _ in kept:
        each.grad = None
        each._post_accumulate_grad_hooks = OrderedDict({0: _let_go})
    try:
        yield
    finally:
        for each, gradient, hooks in kept:
            # None would not remove the hook.
            each._post_accumulate_grad_hooks = OrderedDict() if hooks is None else hooks
            each.grad = gradient


def _let_go(parameter: Tensor) -> None:
    parameter.grad = None
