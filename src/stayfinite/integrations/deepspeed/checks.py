"""Which engines can be guarded, and errors for the others."""

from __future__ import annotations

from importlib import metadata
from typing import Any

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
