"""Calls of a model whose output carries its loss, as transformers' models do: enough to run a step again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from stayfinite.errors import OrderError

Style = Literal["by name", "single", "both"]


class ModelCalls:
    """What a loop calls its model with.

    Arguments:
        model: as the loop calls it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._style: Style = "by name"
        self.explains = True
        """Whether calls are worth remembering; no longer once an output had no loss in it."""

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The batch that a call was made with, in the form that a person knows it."""
        if not args:
            self._style = "by name"
            return kwargs
        if len(args) == 1 and not kwargs:
            self._style = "single"
            return args[0]
        self._style = "both"
        return {"args": args, "kwargs": kwargs}

    def loss_of(self, output: Any) -> Tensor | None:
        """The loss in what the model returned."""
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        self.explains = isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad
        return loss if self.explains else None

    def again(self, batch: Any) -> Tensor:
        """Call the model once more.

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
