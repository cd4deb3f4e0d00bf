"""Calls of a model that returns its loss, as in transformers: enough to run a step again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from stayfinite.errors import OrderError

Style = Literal["by name", "single", "both"]


class ModelCalls:
    """Records how a loop calls its model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._style: Style = "by name"
        self.explains = True
        """Whether to record calls; off once an output had no loss."""

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The batch of a call, in its usual form."""
        if not args:
            self._style = "by name"
            return kwargs
        if len(args) == 1 and not kwargs:
            self._style = "single"
            return args[0]
        self._style = "both"
        return {"args": args, "kwargs": kwargs}

    def loss_of(self, output: Any) -> Tensor | None:
        """The loss in the model's output."""
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        self.explains = isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad
        return loss if self.explains else None

    def again(self, batch: Any) -> Tensor:
        """Call the model again.

        Raises:
            OrderError: its output has no loss.
        """
        if self._style == "both":
            output = self._model(*batch["args"], **batch["kwargs"])
        else:
            output = self._model(**batch) if self._style == "by name" else self._model(batch)
        if (loss := self.loss_of(output)) is None:
            raise OrderError("the model returned no loss in the re-run")
        return loss
