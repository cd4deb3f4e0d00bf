"""Refuse invalid arguments before anything runs."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import is_lazy

from stayfinite.errors import ModelError, OptimizerError, UsageError


def check_parts_of_training(model: object, optimizer: object, scaler: object, steps: object) -> None:
    """Raise UsageError unless these are a model, an optimizer, a scaler or None, and a number of steps."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, not {type(model).__name__}", fix="pass the model itself")
    lazy = [name for name, p in model.named_parameters() if is_lazy(p)]
    if lazy:
        raise ModelError(
            f"{lazy[0]} has no shape yet", fix="run one batch through the model, then build the optimizer, then check"
        )
    if not all(hasattr(optimizer, name) for name in ("step", "zero_grad", "param_groups", "state")):
        raise OptimizerError(
            f"expected a torch optimizer, not {type(optimizer).__name__}",
            fix="pass the object that torch.optim.AdamW(...) or the like returned",
        )
    if scaler is not None and not hasattr(scaler, "is_enabled"):
        raise UsageError(
            f"expected a torch.amp.GradScaler or None, not {type(scaler).__name__}", fix="scaler=torch.amp.GradScaler()"
        )
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise UsageError(
            f"steps={steps!r}: expected a whole number, 0 or more", fix="steps=10, or 0 for no learning test"
        )
