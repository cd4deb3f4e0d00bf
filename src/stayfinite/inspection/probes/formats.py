"""Run the same step in another dtype: fp32 throughout, or half precision as under autocast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps import changes
from stayfinite.autopsy.steps.batch_parts import with_changed
from stayfinite.autopsy.steps.step import Step
from stayfinite.inspection.probes.operators import HALVES

Context = Callable[[], AbstractContextManager[Any]]


def in_full(step: Step) -> Step:
    """The step in fp32 throughout."""
    return step.changed(
        partial(changes.autocast_as, None),
        partial(changes.half_weights_as, step.model, torch.float32),
        partial(changes.CastsAs, torch.float32),
        batch=changes.in_full_precision(step.batch),
    )


def in_half(step: Step, dtype: torch.dtype, *, wrap: bool) -> Step:
    """The step in half precision; ``wrap`` if it does not use autocast yet."""
    if wrap:
        device = next((p.device.type for p in step.model.parameters()), "cpu")
        autocast = partial(torch.amp.autocast, device, dtype=dtype)
        return step.changed(partial(changes.autocast_as, dtype), _switched_on, autocast=autocast)
    contexts: tuple[Context, ...] = (
        partial(changes.autocast_as, dtype),
        partial(changes.half_weights_as, step.model, dtype),
        partial(changes.CastsAs, dtype),
    )
    batch = with_changed(step.batch, lambda x: x.to(dtype) if isinstance(x, Tensor) and x.dtype in HALVES else x)
    return step.changed(*contexts, batch=batch)


@contextmanager
def _switched_on() -> Iterator[None]:
    """Enable autocast contexts that the loop disables; those that modules disable themselves stay off."""
    kind: Any = torch.amp.autocast
    entering, running = kind.__enter__, [0]

    def enter(self: Any) -> Any:
        kept = self._enabled
        self._enabled = kept or not running[0]
        try:
            return entering(self)
        finally:
            self._enabled = kept

    def count(step: int) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            running[0] += step

        return hook

    before = nn.modules.module.register_module_forward_pre_hook(count(1))
    after = nn.modules.module.register_module_forward_hook(count(-1), always_call=True)
    with before, after, changes.replaced(kind, __enter__=enter):
        yield


def stored_in_half(model: nn.Module) -> bool:
    """Whether most weights are in half precision."""
    sizes: Counter[bool] = Counter()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype in HALVES] += parameter.numel()
    return sizes[True] > sizes[False]
