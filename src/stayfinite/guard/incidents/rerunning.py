"""Run a refused step again inside the training, without side effects and without the other ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stayfinite.autopsy.autopsy import Autopsy, perform
from stayfinite.autopsy.incidents.rebuild import autocast_for
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.autopsy.steps.surroundings import is_compiled
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.errors import OrderError
from stayfinite.guard.incidents.capturing import Case, good_weights, is_sharded
from stayfinite.guard.incidents.passes import Pass
from stayfinite.state.parts import TrainingParts, unwrapped

COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional")


def obstacle(case: Case, model: nn.Module, world: int) -> str:
    """Why a step cannot be run again now; empty if it can."""
    if case.later < 0:
        return "the bad step was taken and changed the weights"
    if case.guilty.overwritten:
        return "its batch was overwritten"
    if is_sharded(model):
        return "the weights are sharded, and the other ranks have moved on"
    if world > 1 and any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        return "SyncBatchNorm needs the other ranks, which have moved on"
    if world > 1 and not case.decision.signals.bad_ranks:
        return "no single rank caused it"
    if not case.sure:
        return f"none of its {case.passes} batches is bad alone"
    return ""


def explain(case: Case, parts: TrainingParts, forward: Callable[[Any], Tensor], seconds: float, world: int) -> Autopsy:
    """Perform the autopsy of a step. Weights, buffers, gradients, modes and generators are unchanged afterwards.

    Raises:
        Exception: whatever the forward pass raises.
    """
    step = _step(case.guilty, case.scale, parts, forward)
    good = None
    if case.good is not None:
        case.good.state.wait()
        good = good_weights(case.good)
    materials = Materials(
        good_weights=good,
        optimizer=parts.optimizer,
        spike_limit=case.spike_limit,
        trigger=case.trigger,
        compiled=is_compiled(parts.model),
        notes=case.notes,
    )
    with untouched(step.model), alone(parts.model, world):
        return perform(step, materials, seconds)


def find_guilty(
    case: Case,
    passes: list[Pass],
    parts: TrainingParts,
    forward: Callable[[Any], Tensor],
    *,
    seconds: float,
    world: int,
) -> Pass | None:
    """Run each batch of an accumulated step and return the one that is bad alone; None if none is, or time is up.

    For a finite spike, the one with the largest gradient.
    """
    deadline = time.monotonic() + seconds
    finite = case.decision.signals.finite
    largest: tuple[float, Pass] | None = None
    with alone(parts.model, world):
        for each in reversed(passes):
            if time.monotonic() >= deadline:
                return None
            outcome = _step(each, case.scale, parts, forward).run()
            if outcome.error:
                continue
            if not outcome.finite:
                return each
            if finite and (largest is None or outcome.grad_norm > largest[0]):
                largest = outcome.grad_norm, each
    return None if largest is None else largest[1]


def _step(each: Pass, scale: float, parts: TrainingParts, forward: Callable[[Any], Tensor]) -> Step:
    device = next(iter(parts.parameters().values())).device
    dtype = None if each.autocast is None else str(each.autocast).removeprefix("torch.")
    return Step(
        model=unwrapped(parts.model),
        forward=forward,
        batch=each.batch,
        rng=each.rng,
        scale=scale,
        autocast=autocast_for(device.type, dtype),
    )


@contextmanager
def alone(model: nn.Module, world: int) -> Iterator[None]:
    """Context without other ranks: DDP is bypassed, and a collective is an error."""
    if world == 1:
        yield
        return
    with past_ddp(model), _NoCollectives():
        yield


@contextmanager
def past_ddp(model: nn.Module) -> Iterator[None]:
    """Context in which DDP is bypassed, including the hooks of ``replicate(module)``."""
    hooked = [pair for each in model.modules() for pair in _without_replication(each)]
    wrapped = [each for each in model.modules() if isinstance(each, nn.parallel.DistributedDataParallel)]
    for each in wrapped:
        # Its gradient hooks do nothing unless its own forward pass has prepared them.
        vars(each)["forward"] = _through(each.module)
    try:
        yield
    finally:
        for each in wrapped:
            del vars(each)["forward"]
        for hooks, kept in hooked:
            hooks.clear()
            hooks.update(kept)


def _without_replication(module: nn.Module) -> list[tuple[dict[int, Any], dict[int, Any]]]:
    """Remove the hooks of ``torch.distributed``'s ``replicate``; return the originals for restoring."""
    kept = []
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        of_replicate = [
            key for key, hook in hooks.items() if type(getattr(hook, "__self__", None)).__name__ == "_ReplicateState"
        ]
        if of_replicate:
            kept.append((hooks, dict(hooks)))
            for key in of_replicate:
                del hooks[key]
    return kept


def _through(module: nn.Module) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    return forward


class _NoCollectives(TorchDispatchMode):
    """Turns a collective into an error before it starts: the other ranks would never answer."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator unless it is a collective."""
        if func.namespace in COLLECTIVES:
            raise OrderError(
                (
                    f"the forward pass communicates with other ranks ({func.namespace}.{func._schema.name}), which "
                    "have moved on"
                ),
                fix="stayfinite replay runs the step in one process",
            )
        return func(*args, **(kwargs or {}))
