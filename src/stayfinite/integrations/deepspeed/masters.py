"""The optimizer inside an engine: it steps copies of the weights, in fp32 and often a part of them only."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

_GROUPS = ("bit16_groups", "fp16_groups", "bf16_groups")
"""Where ZeRO 1 and 2, ZeRO-3 and the bf16 optimizer keep the weights they were given."""


class MasterOptimizer:
    """The inner optimizer as a guard needs it: its groups and moments, and whose masters it steps.

    Nothing else is offered on purpose: what asks for more would get hooks of an optimizer that is stepped in parts.

    Arguments:
        inner: as it was given to the engine, or built by it.
        model: what is trained.
    """

    def __init__(self, inner: Optimizer, model: nn.Module) -> None:
        self._inner = inner
        self.stands_for = [parameter for parameter in model.parameters() if parameter.requires_grad]
        """The model's own parameters, which it has masters of."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the inner optimizer; between two steps of ZeRO-3 they hold no tensor."""
        return self._inner.param_groups

    @property
    def state(self) -> Any:
        """The moments, by master."""
        return self._inner.state

    def step(self, closure: Any = None) -> Any:
        """As the inner one does."""
        return self._inner.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the inner one does."""
        self._inner.zero_grad(set_to_none)


def masters_of(model: nn.Module, inner: Optimizer) -> MasterOptimizer:
    """The inner optimizer as a guard needs it, under its own name."""
    kind: type[MasterOptimizer] = type(type(inner).__name__, (MasterOptimizer,), {})
    return kind(inner, model)


def weights_of(engine: Any) -> Any:
    """The model's own weights that the engine trains, in groups as an optimizer has them; its own hold masters."""
    optimizer = engine.optimizer
    kept = next((each for name in _GROUPS if (each := getattr(optimizer, name, None))), None)
    groups = [group["params"] for group in optimizer.param_groups] if kept is None else kept
    return SimpleNamespace(param_groups=[{"params": each} for each in groups])


def tensors_of(engine: Any, inner: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Everything of the training that this rank would save: its part of the weights, the masters, the moments."""
    if engine.zero_optimization_stage() == 3:
        yield from _shares(engine, inner)
        return
    for name, parameter in engine.module.named_parameters():
        yield name, parameter.detach()
    for place, master in enumerate(parameter for group in inner.param_groups for parameter in group["params"]):
        for key, tensor in _with_moments(master, inner):
            yield f"{key} {place}", tensor


def _shares(engine: Any, inner: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Of ZeRO-3. Shares are of one size; beyond the end of a weight there is whatever the memory held."""
    optimizer = engine.optimizer
    for name, parameter in engine.module.named_parameters():
        share = parameter.ds_tensor
        begins = optimizer._get_param_partition_rank(parameter) * share.ds_numel
        real = min(max(parameter.ds_numel - begins, 0), share.ds_numel)
        yield name, share.detach()[:real]
        group, offset, _ = optimizer.grad_position.get(optimizer.get_param_id(parameter), (None, 0, 0))
        master = None if group is None else optimizer.fp32_partitioned_groups_flat[group]
        if master is not None:
            yield from (
                (f"{key} of {name}", tensor[offset : offset + real]) for key, tensor in _with_moments(master, inner)
            )


def _with_moments(master: Tensor, inner: Optimizer) -> Iterator[tuple[str, Tensor]]:
    yield "master", master.detach()
    for key, moment in inner.state.get(master, {}).items():
        if isinstance(moment, Tensor) and moment.dim():
            yield key, moment
