"""Re-run the current step bitwise: forward and backward of all its passes.

Weights, buffers, gradients, modes and generators are unchanged afterwards. Each rank computes alone, except with
``fully_shard``: there all ranks run the step together.
"""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.incidents.batch_form import own_copy
from stayfinite.autopsy.incidents.rebuild import autocast_for
from stayfinite.autopsy.steps.step import untouched
from stayfinite.core.replays import Print
from stayfinite.guard.gates.buffers import RunningBuffers
from stayfinite.guard.incidents.capturing import is_sharded
from stayfinite.guard.incidents.passes import Pass
from stayfinite.guard.incidents.rerunning import alone, past_ddp
from stayfinite.measure.checksum import checksum
from stayfinite.measure.roster import Roster
from stayfinite.state.parts import unwrapped
from stayfinite.state.rng import restore_rng
from stayfinite.state.shards import is_spread


class GradientSums:
    """Hooks the gradients of some parameters until closed.

    Arguments:
        parameters: leaves of the graph; those of ``fully_shard`` are hooked on the gathered weights.
        model: its modules gather them.
    """

    def __init__(self, parameters: Sequence[Tensor], model: nn.Module) -> None:
        self._parameters = parameters
        self._sums: list[Tensor | None] = [None] * len(parameters)
        self._handles = [
            each.register_hook(partial(self._hear, place))
            for place, each in enumerate(parameters)
            if each.requires_grad
        ]
        places = {id(each): place for place, each in enumerate(parameters) if is_spread(each)}
        self._gathered: dict[int, Tensor] = {}
        """Hooked gathered weights by id: they are the same objects in every pass."""
        for module in sharding_modules(model) if places else ():
            owners = [
                (owner, name, places[id(each)])
                for owner in module.modules()
                for name, each in owner._parameters.items()
                if id(each) in places
            ]
            listen = torch.compiler.disable(partial(self._listen, owners))
            self._handles.append(module.register_forward_pre_hook(lambda *_, listen=listen: listen()))

    def _listen(self, owners: Sequence[tuple[nn.Module, str, int]]) -> None:
        """Hook the gathered weights of a module that is about to compute."""
        for owner, name, place in owners:
            whole = owner._parameters[name]
            if whole is None or is_spread(whole) or id(whole) in self._gathered or not whole.requires_grad:
                continue
            self._gathered[id(whole)] = whole
            self._handles.append(whole.register_hook(partial(self._hear, place)))

    def _hear(self, place: int, gradient: Tensor) -> None:
        own = checksum(gradient)
        before = self._sums[place]
        self._sums[place] = own if before is None else before + own

    def take(self) -> tuple[int, ...]:
        """Sums since the last call; 0 for none. Syncs with the device."""
        sums, self._sums = self._sums, [None] * len(self._parameters)
        summed = [(place, each) for place, each in enumerate(sums) if each is not None]
        bits = [0] * len(sums)
        for device in {each.device for _, each in summed}:
            there = [(place, each) for place, each in summed if each.device == device]
            numbers = torch.stack([each for _, each in there]).tolist()
            for (place, _), number in zip(there, numbers, strict=True):
                bits[place] = number
        return tuple(bits)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()


def sharding_modules(model: nn.Module) -> list[nn.Module]:
    """Modules wrapped by torch's ``fully_shard``."""
    from torch.distributed.fsdp import FSDPModule  # loads sympy, which changes the warning filters

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextmanager
def let_go_at_once(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Context in which a gradient is freed once it is complete, so a second set takes no memory.

    Earlier gradients and post-accumulate hooks are restored at the end.
    """
    kept = [(each, each.grad, each._post_accumulate_grad_hooks) for each in parameters if each.requires_grad]
    for each, _, _ in kept:
        each.grad = None
        each._post_accumulate_grad_hooks = OrderedDict({0: _let_go})
    try:
        yield
    finally:
        for each, gradient, hooks in kept:
            # None would not remove the hook.
            each._post_accumulate_grad_hooks = OrderedDict() if hooks is None else hooks
            each.grad = gradient


def _let_go(parameter: Tensor) -> None:
    parameter.grad = None


def why_never(model: nn.Module, forward: Callable[[Any], Tensor] | None, world: int) -> str:
    """Why no step of this training can be run again; empty if it can."""
    if forward is None:
        return "no forward function: give forward= to the guard"
    if getattr(forward, "is_recorded", False):
        return "the forward pass is a CUDA graph, which draws new random numbers in a re-run"
    if is_sharded(model) and not computes_together(model):
        return "ranks compute one result together (tensor parallel, ZeRO-3 or FSDP1)"
    if world > 1 and any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        return "SyncBatchNorm needs all ranks"
    return ""


def computes_together(model: nn.Module) -> bool:
    """Whether ``fully_shard`` holds the weights: ranks gather them together and compute on their own batches.

    Its meshes replicate in all dimensions except the last; any other sharding splits the computation itself.
    """
    spread = [each.placements for each in model.parameters() if is_spread(each)]
    by_data = all(last.is_shard() and all(each.is_replicate() for each in rest) for *rest, last in spread)
    return bool(spread) and by_data and bool(sharding_modules(model))


def why_not_now(passes: list[Pass], let_go: int) -> str:
    """Why this step cannot be run again; empty if it can."""
    if not passes:
        return "no batch went through guard.forward"
    if let_go:
        return f"{let_go} of its batches were too large to keep"
    if any(each.changed for each in passes):
        return "the forward pass modifies its batch"
    if any(each.overwritten for each in passes):
        return "its batch was overwritten"
    if any(len(each.arrived) > 1 for each in passes):
        return "backward ran twice over one forward pass"
    if not any(each.arrived for each in passes):
        return "backward did not reach the loss of guard.forward"
    return ""


class StepRerun:
    """Runs the current step again.

    Arguments:
        buffers: the model's changing buffers, with their values before the step.
    """

    def __init__(self, model: nn.Module, buffers: RunningBuffers, world: int) -> None:
        self._model, self._buffers, self._world = model, buffers, world

    def run(
        self,
        forward: Callable[[Any], Tensor],
        passes: list[Pass],
        roster: Roster,
        sums: GradientSums,
        *,
        rehearsal: bool = False,
    ) -> Print:
        """Run the step and return its fingerprint.

        Arguments:
            rehearsal: turn communication with other ranks into an error.

        Raises:
            Exception: whatever the forward pass raises.
        """
        model, device = self._model, roster.device.type
        away = alone(model, self._world) if rehearsal else past_ddp(model)
        losses: list[Tensor | None] = []
        with untouched(unwrapped(model)), self._buffers.as_kept(), let_go_at_once(roster.parameters), away:
            for each in passes:
                restore_rng(each.rng)
                with torch.enable_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with autocast_for(device, each.autocast)():
                        loss = forward(own_copy(each.batch))
                    if each.arrived:
                        torch.autograd.backward(loss, each.arrived[0])
                losses.append(loss.detach() if each.arrived else None)
            return print_of(losses, sums)


def print_of(losses: list[Tensor | None], sums: GradientSums) -> Print:
    """Fingerprint of one run of a step; None is a pass without backward. Syncs with the device."""
    bits = tuple(0 if loss is None else int(checksum(loss)) for loss in losses)
    return Print(bits, sums.take(), sum(float(loss.float().sum()) for loss in losses if loss is not None))
