"""Run a refused step again inside the training, without side effects and without the other ranks."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stayfinite.autopsy.autopsy import Autopsy, perform
from stayfinite.autopsy.incidents.rebuild import autocast_for
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.autopsy.steps.surroundings import is_compiled
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.errors import OrderError
from stayfinite.guard.incidents.capturing import Case, good_weights, is_sharded
from stayfinite.guard.incidents.passes import ForwardPass, Pass, share_of
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.state.landing import settle
from stayfinite.state.parts import TrainingParts, holding, unwrapped
from stayfinite.state.rng import restore_rng
from stayfinite.state.shards import local_part
from stayfinite.state.snapshots import Snapshot
from stayfinite.state.training import TrainingState

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
    return Step(
        model=unwrapped(parts.model),
        forward=forward,
        batch=each.batch,
        rng=each.rng,
        scale=scale,
        autocast=autocast_for(device.type, each.autocast),
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


class Losses(NamedTuple):
    """Losses of the same batches with the same random numbers."""

    earlier: float
    """With the known-good weights."""
    present: float
    own: float | None
    """Loss of the unusual step's own batches with the known-good weights, if they were kept."""


class Comparison:
    """Runs recent batches again with the weights of a snapshot and with the current ones.

    Arguments:
        ranks: all processes; each runs its own batches, and the mean counts.
        forward: the forward pass, with the recent batches while an unusual step is on probation.
    """

    def __init__(self, parts: TrainingParts, ranks: Ranks, forward: ForwardPass) -> None:
        self._parts, self._ranks, self._forward, self._passes = parts, ranks, forward, forward.passes

    @property
    def possible(self) -> bool:
        """Whether batches can be run again. Sharded weights would need all ranks in lockstep."""
        return self._forward.function is not None and not self._sharded

    @cached_property
    def _sharded(self) -> bool:
        # Cached: this is read at every step, and there may be thousands of parameters.
        return is_sharded(self._parts.model)

    def with_weights_of(self, snapshot: Snapshot, unusual: int) -> Losses | None:
        """Losses with both weights; None if they could not be computed. A collective."""
        found: Losses | None = None
        try:
            found = self._run(snapshot, self._passes.of(unusual))
        except Exception:  # a forward pass may raise anything, including out of memory
            found = None
        if self._ranks.highest(int(found is None)) or found is None:
            return None
        earlier, present, own = self._ranks.mean(
            [found.earlier, found.present, math.nan if found.own is None else found.own]
        )
        return Losses(earlier, present, None if math.isnan(own) else own)

    def _run(self, snapshot: Snapshot, unusual: list[Pass]) -> Losses | None:
        steps = [passes for _, passes in self._passes.kept if not any(each.overwritten for each in passes)]
        if not steps:
            return None
        # A snapshot that is still being copied reads the weights.
        settle(self._parts.optimizer)
        with untouched(unwrapped(self._parts.model)), past_ddp(self._parts.model), torch.no_grad():
            present = [self._step(passes) for passes in steps]
            with weights_of(self._parts, snapshot.state):
                earlier = [self._step(passes) for passes in steps]
                kept = unusual and not any(each.overwritten for each in unusual)
                own = self._step(unusual) if kept else None
        return Losses(sum(earlier) / len(steps), sum(present) / len(steps), own)

    def _step(self, passes: list[Pass]) -> float:
        """Loss of a step: the sum over its batches."""
        losses = [float(self._loss(each)) for each in passes]
        return sum(losses) * share_of(passes)

    def _loss(self, each: Pass) -> Tensor:
        assert self._forward.function is not None
        device = next(iter(self._parts.parameters().values())).device
        restore_rng(each.rng)
        with autocast_for(device.type, each.autocast)():
            return self._forward.function(each.batch).detach()


def weights_of(parts: TrainingParts, state: TrainingState) -> AbstractContextManager[None]:
    """Context in which parameters and buffers have the values of a state; restored bitwise afterwards.

    Values are copied in place, so compiled code and recorded graphs see them. Needs one more copy of the weights on
    their device.
    """
    state.wait()
    return holding(
        (local_part(tensor), state.tensors[f"model.{name}"])
        for name, tensor in (parts.parameters() | parts.buffers()).items()
        if f"model.{name}" in state.tensors
    )
