"""What a training is given: refuse invalid parts before anything runs, and find the loss in its forward pass."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from stayfinite.errors import LossError, ModelError, OptimizerError, UsageError


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


FORWARD = "forward=lambda batch: F.cross_entropy(model(batch[0]), batch[1]), for example"


def forward_for(model: nn.Module, batch: Any, forward: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """The given forward, or for a mapping ``model(**batch)`` and its loss. Raises UsageError otherwise."""
    if forward is not None and not callable(forward):
        raise UsageError(f"expected forward(batch) -> loss, not {type(forward).__name__}", fix=FORWARD)
    if forward is None and not isinstance(batch, Mapping):
        raise UsageError(f"cannot compute a loss from a batch of type {type(batch).__name__}", fix=FORWARD)
    run = forward or (lambda given: model(**given))
    return lambda given: loss_in(run(given))


def loss_in(returned: Any) -> Any:
    """The loss in a return value: itself, ``.loss``, ``["loss"]`` or the first item. Raises LossError without one."""
    if isinstance(returned, Tensor | int | float):
        return returned
    if isinstance(returned, Mapping) and returned.get("loss") is not None:
        return returned["loss"]
    if isinstance(getattr(returned, "loss", None), Tensor):
        return returned.loss
    if isinstance(returned, tuple | list) and returned and isinstance(returned[0], Tensor):
        return returned[0]
    if hasattr(returned, "item") and callable(returned.item):  # a numpy number without a graph
        return returned.item() if getattr(returned, "size", 1) == 1 else returned
    hint = "put the labels into the batch" if hasattr(returned, "logits") else FORWARD
    raise LossError(f"the forward pass returned {type(returned).__name__} without a loss", fix=hint)
