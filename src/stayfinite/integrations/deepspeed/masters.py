"""The optimizer inside an engine: it steps fp32 copies of the weights, often only a shard of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stayfinite.errors import UsageError

FIRST_VERSION = "0.19"


def check_engine(engine: Any) -> None:
    """Raise UsageError unless this engine's steps can be refused."""
    from deepspeed.runtime.engine import DeepSpeedEngine

    if not isinstance(engine, DeepSpeedEngine):
        raise UsageError(
            f"expected the engine of deepspeed.initialize, not {type(engine).__name__}",
            fix="engine, *_ = deepspeed.initialize(...), then deepspeed_guard(engine)",
        )
    if type(engine).__name__ == "PipelineEngine":
        raise UsageError(
            "DeepSpeed's PipelineEngine is not supported: it steps inside train_batch",
            fix="train without pipeline stages (ZeRO 1 to 3), or remove the guard",
        )
    if inner_optimizer(engine) is None:
        raise UsageError(
            "the engine has no optimizer, so it takes no step",
            fix='give deepspeed.initialize an optimizer, or its config an "optimizer"',
        )
    if getattr(engine, "zenflow", False):
        raise UsageError(
            "ZenFlow updates some weights at every batch: a step cannot be refused as a whole",
            fix='remove "zenflow" from "zero_optimization"',
        )
    if getattr(engine.optimizer, "torch_autocast_gradscaler", None) is not None:
        raise UsageError(
            "torch_autocast in float16 with ZeRO skips each weight group separately",
            fix='use "bf16": {"enabled": true} or "fp16": {"enabled": true}, or torch_autocast in bfloat16',
        )
    missing = [name for name in _needed(engine) if not hasattr(engine.optimizer, name)]
    if missing:
        raise UsageError(
            f"deepspeed {metadata.version('deepspeed')}: {type(engine.optimizer).__name__} lacks {missing[0]}, which "
            "the guard needs",
            fix=f"pip install 'deepspeed>={FIRST_VERSION}'",
        )


def inner_optimizer(engine: Any) -> Optimizer | None:
    """The torch optimizer that the engine steps; None if there is none."""
    optimizer = engine.optimizer
    while optimizer is not None and not isinstance(optimizer, Optimizer):
        optimizer = getattr(optimizer, "optimizer", None)
    return optimizer


def keeps_weights_apart(engine: Any) -> bool:
    """Whether this rank has only a shard of the weights (ZeRO-3)."""
    return bool(engine.zero_optimization_stage() == 3)


def _needed(engine: Any) -> tuple[str, ...]:
    if not engine.zero_optimization() or hasattr(engine.optimizer, "get_grads_for_norm"):
        return ()
    return ("_get_norm_groups" if keeps_weights_apart(engine) else "scaled_global_norm", "_update_scale", "clip_grad")


_GROUPS = ("bit16_groups", "fp16_groups", "bf16_groups")
"""Attributes with the original weights, in ZeRO 1 and 2, ZeRO-3 and the bf16 optimizer."""


def weights_of(engine: Any) -> Any:
    """The model's weights that the engine trains, as optimizer groups; the engine's own groups hold masters."""
    optimizer = engine.optimizer
    kept = next((each for name in _GROUPS if (each := getattr(optimizer, name, None))), None)
    groups = [group["params"] for group in optimizer.param_groups] if kept is None else kept
    return SimpleNamespace(param_groups=[{"params": each} for each in groups])


def tensors_of(engine: Any, inner: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Tensors that this rank would save: its share of the weights, the masters, the moments."""
    if engine.zero_optimization_stage() == 3:
        yield from _shares(engine, inner)
        return
    for name, parameter in engine.module.named_parameters():
        yield name, parameter.detach()
    for place, master in enumerate(parameter for group in inner.param_groups for parameter in group["params"]):
        for key, tensor in _with_moments(master, inner):
            yield f"{key} {place}", tensor


def _shares(engine: Any, inner: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Shards of ZeRO-3. They are equally large; beyond the end of a weight the memory is uninitialized."""
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
