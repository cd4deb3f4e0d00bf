"""Checks that reject impossible setups before anything is changed."""

import difflib
import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from stayfinite.core.policy import Policy
from stayfinite.errors import LossError, ModelError, OptimizerError, OrderError, PolicyError, UsageError
from stayfinite.measure.roster import Roster

Built = TypeVar("Built")
Given = ParamSpec("Given")


def naming_its_arguments(
    build: Callable[Concatenate[Built, Given], None],
) -> Callable[Concatenate[Built, Given], None]:
    """Make ``__init__`` raise a TypeError that names the class, and the argument that was meant."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def named(self: Built, *args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(_wrong_call(type(self).__name__, list(signature.parameters)[1:], kwargs, error)) from None
        build(self, *args, **kwargs)

    wrapped: Callable[Concatenate[Built, Given], None] = named  # type: ignore[assignment]
    return wrapped


def _wrong_call(name: str, known: list[str], given: Mapping[str, Any], error: TypeError) -> str:
    for each in given:
        if each not in known:
            close = difflib.get_close_matches(each, known, n=1)
            return f"{name}() has no argument {each!r}; " + (
                f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}"
            )
    return f"{name}(): {error}"


def check_construction(
    model: object,
    optimizer: Optimizer,
    scheduler: object,
    scaler: object,
    policy: Policy,
    run_dir: object,
    console: object,
) -> None:
    """Raise UsageError unless the parts of a guard fit together."""
    check_kinds(model, scaler, policy, console)
    check_run_dir(policy, run_dir)
    check_optimizer(optimizer)
    check_device(optimizer)
    check_scheduler(scheduler, optimizer)


def check_loss(loss: object) -> None:
    """Raise LossError unless ``loss`` can be differentiated."""
    if not isinstance(loss, Tensor):
        raise LossError(
            f"the loss must be a tensor, not {type(loss).__name__} ({loss!r:.60})",
            fix="pass the tensor that the loss function returned; take .item() only from a copy for logging",
        )
    if loss.numel() != 1:
        raise LossError(
            f"the loss must be a scalar, but has shape {list(loss.shape)}",
            fix="reduce it, for example with loss.mean()",
        )
    if not loss.requires_grad:
        raise LossError(
            "the loss is detached (requires_grad is False): no gradient can reach a parameter",
            fix=(
                "look for .item(), .data, .detach(), numpy() or torch.tensor(...) between output and loss, "
                "torch.no_grad() around the forward pass, or a model whose parameters are all frozen"
            ),
        )


def check_engine(model: nn.Module) -> None:
    """Raise ModelError if an engine owns the gradients and steps the optimizer itself."""
    if any(hasattr(parameter, "main_grad") for parameter in model.parameters()):
        raise ModelError(
            "megatron-core keeps gradients in main_grad and steps the optimizer itself",
            fix="from stayfinite.integrations.megatron import megatron_guard; "
            "megatron_guard(model, optimizer, scheduler) with megatron's optimizer",
        )


def check_first_backward(error: BaseException) -> None:
    """Raise OrderError if backward failed because it already ran on the same graph."""
    if isinstance(error, RuntimeError) and "backward through the graph a second time" in str(error):
        raise OrderError(
            "backward already ran on this loss",
            fix=(
                "remove your own loss.backward(): guard.step(loss) runs backward, clips, steps and clears gradients. "
                "Detach a hidden state kept from the step before, or call guard.backward(loss, retain_graph=True)"
            ),
        ) from error


def check_rate(lr: float, step: int) -> None:
    """Raise OptimizerError for a learning rate that would make every weight NaN or infinite.

    A refusal would not help: the schedule does not advance with a refused step.
    """
    if not math.isfinite(lr):
        raise OptimizerError(
            f"the learning rate is {lr} at step {step}. The step was refused; weights are unchanged",
            fix=(
                "check the schedule (division by 0 steps, root of a negative number) and code that sets "
                "optimizer.param_groups[...]['lr']"
            ),
        )


def check_parts(parts: Mapping[str, object]) -> None:
    """Raise LossError unless every part is a number."""
    for words in _not_numbers("loss part", parts):
        raise LossError(words, fix="reduce it, for example with .mean()")


def check_signals(signals: Mapping[str, object]) -> None:
    """Raise UsageError unless every signal is a number."""
    for words in _not_numbers("signal", signals):
        raise UsageError(words, fix="reduce it, for example with .mean(); stayfinite.rl.signals(...) makes all of them")


def _not_numbers(kind: str, named: Mapping[str, object]) -> Iterator[str]:
    for name, each in named.items():
        if not isinstance(each, int | float) and not (isinstance(each, Tensor) and each.numel() == 1):
            what = f"has shape {list(each.shape)}" if isinstance(each, Tensor) else f"is a {type(each).__name__}"
            yield f"{kind} {name!r} must be a number, but {what}"


def check_first_step(step: object) -> int | None:
    """Validate the first step of an announced phase; None for the next one."""
    if step is None:
        return None
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise UsageError(
            f"guard.expect(step={step!r}): expected a whole number, not {type(step).__name__}",
            fix="name the first step of the phase, for example step=5000; leave it out for the next one",
        )
    return operator.index(step)


def check_max_norm(max_norm: object) -> float | None:
    """Validate the clipping norm; None for no clipping."""
    if max_norm is None:
        return None
    if not isinstance(max_norm, Real) or isinstance(max_norm, bool) or math.isnan(max_norm) or max_norm <= 0:
        raise PolicyError(
            f"max_norm={max_norm!r}: expected a number above 0, or None",
            fix="clip at 1.0, which suits most models; None switches clipping off",
        )
    return float(max_norm)


def check_run_dir(policy: Policy, run_dir: object) -> None:
    """Raise PolicyError if the policy saves checkpoints but there is no run directory."""
    asked = [name for name in ("checkpoint_steps", "checkpoint_minutes") if getattr(policy, name) is not None]
    if asked and run_dir is None:
        raise PolicyError(
            f"Policy({asked[0]}={getattr(policy, asked[0])!r}) saves checkpoints, but there is no run_dir",
            fix="build the guard with run_dir='runs/first', or remove that setting",
        )


def check_room(run_dir: str | os.PathLike[str], reason: str) -> None:
    """Raise UsageError if nothing can be written in the run directory, for this reason."""
    if reason:
        raise UsageError(
            f"run_dir={os.fspath(run_dir)!r} cannot be written: {reason}",
            fix="name a new or writable directory, such as run_dir='runs/first'; or leave it out to record nothing",
        )


def check_kinds(model: object, scaler: object, policy: object, console: object) -> None:
    """Raise UsageError unless model, scaler, policy and console have the right types."""
    if any(kind.__module__.partition(".")[0] == "composer" for kind in type(model).__mro__):
        raise not_in_composer()
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, not {type(model).__name__}", fix="pass the model itself")
    if scaler is not None and not hasattr(scaler, "is_enabled"):
        raise UsageError(
            f"expected a torch.amp.GradScaler or None, not {type(scaler).__name__}", fix="scaler=torch.amp.GradScaler()"
        )
    if not isinstance(policy, Policy):
        raise PolicyError(
            f"expected a Policy, not {type(policy).__name__} ({policy!r:.40})",
            fix="policy=Policy.strict(), for example",
        )
    if console is not None and not callable(getattr(console, "print", None)):
        raise UsageError(
            f"expected a console with a print method, not {type(console).__name__}",
            fix="console=rich.console.Console(file=...), or leave it out for stderr",
        )


def not_in_composer() -> ModelError:
    """Error for a training driven by composer, whose steps a guard cannot see."""
    return ModelError(
        "composer's Trainer runs backward and steps itself: a guard cannot refuse its steps",
        fix=(
            "train the inner torch module with Guard(module, optimizer), or use transformers, Lightning, accelerate "
            "or OLMo-core. `stayfinite doctor train.py` can still watch it"
        ),
    )


def check_gathered(loss: Tensor | None, stray: Mapping[str, Tensor | float] | None) -> Tensor:
    """Return the loss gathered for a step.

    Arguments:
        stray: parts passed to the step without their loss.

    Raises:
        UsageError: there are such parts.
        OrderError: there is no loss.
    """
    if stray:
        raise UsageError(
            "guard.step(parts=...) needs the loss too",
            fix="guard.backward(loss, parts=...), or guard.step(loss, parts=...)",
        )
    if loss is None:
        raise OrderError(
            "guard.step() without a loss, and no guard.backward(loss) before it",
            fix="call guard.step(loss), or guard.backward(loss / k) k times and then guard.step()",
        )
    return loss


def check_optimizer(optimizer: Optimizer) -> None:
    """Raise OptimizerError unless the optimizer uses one gradient per step."""
    if not all(hasattr(optimizer, name) for name in ("step", "zero_grad", "param_groups", "state")):
        raise OptimizerError(
            f"expected a torch optimizer, not {type(optimizer).__name__}",
            fix="pass the object that torch.optim.AdamW(...) or the like returned",
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if isinstance(optimizer, LBFGS) or (closure is not None and closure.default is inspect.Parameter.empty):
        raise OptimizerError(
            f"{type(optimizer).__name__} re-evaluates the loss in its step (closure): its steps cannot be refused",
            fix="use an optimizer with one gradient per step, such as torch.optim.AdamW",
        )


def check_device(optimizer: Optimizer) -> None:
    """Raise ModelError for parameters on the meta device."""
    held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    empty = [p for p in held if p.is_meta]
    if empty:
        raise ModelError(
            f"{len(empty)} of {len(held)} parameters are on the meta device: they have no values",
            fix=(
                "load or initialize the model before building optimizer and guard: model.to_empty(device=...) and "
                "initialization, or load_state_dict(..., assign=True)"
            ),
        )


def check_scheduler(scheduler: object, optimizer: Optimizer) -> None:
    """Raise UsageError unless the scheduler steps once per step and drives this optimizer."""
    if isinstance(scheduler, ReduceLROnPlateau):
        raise UsageError(
            "ReduceLROnPlateau steps on a validation metric, which the guard does not have",
            fix="leave scheduler out and call scheduler.step(metric) yourself after each evaluation",
        )
    if scheduler is not None and not callable(getattr(scheduler, "step", None)):
        raise UsageError(
            f"expected a learning-rate scheduler, not {type(scheduler).__name__}",
            fix="pass an object of torch.optim.lr_scheduler, or anything with a step()",
        )
    driven = getattr(scheduler, "optimizer", optimizer)
    if isinstance(driven, Optimizer) and driven is not optimizer:
        raise UsageError(
            "the scheduler drives another optimizer than the one given to the guard",
            fix="build the scheduler from the same optimizer object",
        )


def check_weights(roster: Roster, scaler: GradScaler | None) -> None:
    """Raise OptimizerError for an fp16 scaler with float16 weights, which it cannot unscale."""
    half = [
        roster.names[index]
        for (_, dtype), members in roster.places.items()
        if dtype is torch.float16
        for index in members
    ]
    if scaler is not None and half:
        raise OptimizerError(
            f"GradScaler cannot unscale float16 gradients; {len(half)} trainable parameters are float16, first "
            f"{half[0]}",
            fix="load the weights in float32 and use autocast, or use bfloat16 without a scaler",
        )
