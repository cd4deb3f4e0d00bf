"""Forward passes of a loop: enough to run a step again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stayfinite.errors import OrderError
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.framework_guard import FrameworkGuard

Style = Literal["by name", "single", "both"]


class ModelCalls:
    """Records how a loop calls a model that returns its loss, as in transformers."""

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


class PassGuard(FrameworkGuard, ABC):
    """Records the forward passes of a loop: by ``guard.forward``, or by the calls of a model that returns its loss."""

    _passed: Callable[[Tensor], None] | None = None
    _passing: ExitStack
    _again_now = False

    def __init__(self, called: nn.Module, forward: Callable[[Any], Tensor] | None, **driven: Any) -> None:
        self._forward, self._calls = forward, ModelCalls(called)
        super().__init__(DrivenGuard(**driven, forward=self._again), driven["run_dir"])
        self._hooks += [
            called.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            called.register_forward_hook(self._after_forward),
        ]

    def forward(self, batch: Any) -> Tensor:
        """Run the ``forward`` given at construction, and record its batch, so a bad step can be explained."""
        if self._forward is None:
            raise OrderError(
                "guard.forward() needs a forward function",
                fix="build the guard with forward=lambda batch: ..., or compute the loss yourself",
            )
        self._between_steps()
        with ExitStack() as stack:
            passed = self._note(batch, stack)
            loss = self._forward(batch)
            passed(loss)
        return loss

    def _before_forward(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._again_now:
            return
        self._between_steps()
        if self._forward is None and torch.is_grad_enabled() and self._calls.explains:
            self._passing = ExitStack()
            self._passed = self._note(self._calls.take(args, kwargs), self._passing)

    def _after_forward(self, _: nn.Module, __: Any, output: Any) -> None:
        if self._again_now or self._passed is None:
            return
        passed, self._passed = self._passed, None
        if (loss := self._calls.loss_of(output)) is not None:
            passed(loss)
        self._passing.close()

    def _note(self, batch: Any, stack: ExitStack) -> Callable[[Tensor], None]:
        return stack.enter_context(self.driven.passing(batch))

    @abstractmethod
    def _bare(self) -> AbstractContextManager[Any]:
        """Context in which the model is called without what the framework adds."""

    def _again(self, batch: Any) -> Tensor:
        """Run a forward pass again, for an autopsy."""
        self._again_now = True
        try:
            with self._bare():
                return self._calls.again(batch) if self._forward is None else self._forward(batch)
        finally:
            self._again_now = False
