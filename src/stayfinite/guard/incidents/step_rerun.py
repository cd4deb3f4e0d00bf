"""Re-run the current step bitwise: forward and backward of all its passes.

Weights, buffers, gradients, modes and generators are unchanged afterwards. Each rank computes alone, except with
``fully_shard``: there all ranks run the step together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.incidents.batch_form import own_copy
from stayfinite.autopsy.incidents.rebuild import autocast_for
from stayfinite.autopsy.steps.step import untouched
from stayfinite.core.replays import Print
from stayfinite.guard.gates.buffers import RunningBuffers
from stayfinite.guard.incidents.capturing import is_sharded
from stayfinite.guard.incidents.gradient_sums import GradientSums, let_go_at_once, sharding_modules
from stayfinite.guard.incidents.passes import Pass
from stayfinite.guard.incidents.rerunning import alone, past_ddp
from stayfinite.measure.checksum import checksum
from stayfinite.measure.roster import Roster
from stayfinite.state.parts import unwrapped
from stayfinite.state.rng import restore_rng
from stayfinite.state.shards import is_spread


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
                dtype = None if each.autocast is None else str(each.autocast).removeprefix("torch.")
                with torch.enable_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with autocast_for(device, dtype)():
                        loss = forward(own_copy(each.batch))
                    if each.arrived:
                        torch.autograd.backward(loss, each.arrived[0])
                losses.append(loss.detach() if each.arrived else None)
            return print_of(losses, sums)


def print_of(losses: list[Tensor | None], sums: GradientSums) -> Print:
    """Fingerprint of one run of a step; None is a pass without backward. Syncs with the device."""
    bits = tuple(0 if loss is None else int(checksum(loss)) for loss in losses)
    return Print(bits, sums.take(), sum(float(loss.float().sum()) for loss in losses if loss is not None))
