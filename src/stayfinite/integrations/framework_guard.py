"""Base of guards in a framework's loop: queries, the work between two steps, closing."""

import atexit
import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stayfinite.core.decision import Decision
from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import OrderError
from stayfinite.guard.driven import DrivenGuard


class NotGuarded(UserWarning):
    """The steps of this training cannot be refused; it continues without a guard."""


def warn_of_unseen_loss(call: str) -> None:
    """Warn of a step whose backward pass bypassed the framework."""
    warnings.warn(
        f"a step was taken without {call}, so it is not guarded. Call {call} instead of loss.backward().",
        NotGuarded,
        stacklevel=3,
    )


def explaining(policy: Policy | None, *, explain: bool) -> Policy:
    """The policy, or the usual one; without autopsies unless bad steps are to be explained."""
    policy = policy or Policy()
    return policy if explain else replace(policy, autopsy_seconds=0)


def figures_of(driven: DrivenGuard, norm: float, vetoes: int, name: str = "stayfinite") -> dict[str, float]:
    """What a loop logs of a guard, under this name."""
    counts = {"vetoes": vetoes, "bounded": driven.unusual["bounded"], "findings": len(driven.causes)}
    return {f"{name}/grad_norm": norm} | {f"{name}/{what}": float(count) for what, count in counts.items()}


class FrameworkGuard:
    """Guards a loop that a framework takes part in; see the framework's file for construction."""

    def __init__(self, *, run_dir: Path | None, **driven: Any) -> None:
        self.driven, self._run_dir = DrivenGuard(**driven, run_dir=run_dir), run_dir
        self.vetoes = 0
        self._norm = math.nan
        self._decision: Decision | None = None
        self._stepped = self._closed = False
        self._joined = dist.is_available() and dist.is_initialized()
        self._stand_ins = StandIns()
        # The loop does not close the guard: write what is open at process exit.
        atexit.register(self._at_exit)

    @property
    def refused(self) -> bool:
        """Whether the last step was refused."""
        return self._decision is not None and self._decision.refused

    @property
    def run_dir(self) -> Path | None:
        """The run directory."""
        return self._run_dir

    @property
    def decisions(self) -> list[Decision]:
        """Recent decisions, oldest first."""
        self._between_steps()
        return self.driven.decisions

    def figures(self) -> dict[str, float]:
        """Gradient norm of the last step; vetoes, bounded steps and findings so far. Added to what the loop logs."""
        return figures_of(self.driven, self._norm, self.vetoes)

    def describe(self) -> str:
        """What is guarded, how, and at what cost, in a few lines."""
        return self.driven.describe()

    def flush(self) -> None:
        """Act on the last step now, instead of at the next forward pass. Schedules should have advanced."""
        self._between_steps()
        self.driven.flush()

    def state_dict(self) -> dict[str, Any]:
        """The guard's memory as plain data."""
        self._between_steps()
        plain: dict[str, Any] = json.loads(json.dumps(self.driven.state_dict()))
        return plain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; load model and optimizer first."""
        self._forget_step()
        self.driven.load_state_dict(state)

    def close(self) -> None:
        """Remove all wrappers, write the rest, and print the summary."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        atexit.unregister(self._at_exit)
        try:
            # After an error the ranks can no longer agree on anything.
            if error is None and (not self._joined or dist.is_initialized()):
                self._between_steps()
        finally:
            self._closed = True
            self._stand_ins.off()
            self._leave()
            self.driven.__exit__(kind, error, trace)

    def _close_with(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stands in for the call that ends the framework's training."""
        self.close()
        return original(*args, **kwargs)

    def _leave(self) -> None:
        """Restore other changes to the framework's objects."""

    def _decide(self, decision: Decision) -> None:
        """Store the decision on the current step."""
        self._decision = decision
        self.vetoes += decision.refused
        self._norm = decision.signals.grad_norm

    def _between_steps(self) -> None:
        """Act on the last step, which the loop has finished."""
        if self._stepped and not self._closed:
            self._forget_step(abandon=False)
            self.driven.settle()

    def _forget_step(self, *, abandon: bool = True) -> None:
        self._decision, self._stepped = None, False
        if abandon:
            self.driven.abandon()

    def _at_exit(self) -> None:
        with suppress(Exception):
            self.close()


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
        self._called, self._forward, self._calls = called, forward, ModelCalls(called)
        super().__init__(**driven, forward=self._again)
        self._stand_ins.keep(called.register_forward_pre_hook(self._before_forward, with_kwargs=True).remove)
        self._stand_ins.keep(called.register_forward_hook(self._after_forward).remove)

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
