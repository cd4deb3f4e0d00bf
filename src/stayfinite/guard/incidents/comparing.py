"""Compare the known-good weights with the current ones on recent batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from stayfinite.autopsy.incidents.rebuild import autocast_for
from stayfinite.autopsy.steps.step import untouched
from stayfinite.guard.incidents.capturing import is_sharded
from stayfinite.guard.incidents.forward_pass import ForwardPass
from stayfinite.guard.incidents.passes import Pass, Passes, share_of
from stayfinite.guard.incidents.rerunning import past_ddp
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.state.landing import settle
from stayfinite.state.parts import TrainingParts, unwrapped
from stayfinite.state.rng import restore_rng
from stayfinite.state.shards import local_part
from stayfinite.state.snapshots import Snapshot
from stayfinite.state.training import TrainingState


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
        passes: recent batches, while an unusual step is on probation.
    """

    def __init__(self, parts: TrainingParts, ranks: Ranks, forward: ForwardPass, passes: Passes) -> None:
        self._parts, self._ranks, self._forward, self._passes = parts, ranks, forward, passes

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
        dtype = None if each.autocast is None else str(each.autocast).removeprefix("torch.")
        restore_rng(each.rng)
        with autocast_for(device.type, dtype)():
            return self._forward.function(each.batch).detach()


@contextmanager
def weights_of(parts: TrainingParts, state: TrainingState) -> Iterator[None]:
    """Context in which parameters and buffers have the values of a state; restored bitwise afterwards.

    Values are copied in place, so compiled code and recorded graphs see them. Needs one more copy of the weights on
    their device.
    """
    state.wait()
    live = {
        f"model.{name}": local_part(tensor)
        for name, tensor in (parts.parameters() | parts.buffers()).items()
        if f"model.{name}" in state.tensors
    }
    with torch.no_grad():
        own = {name: tensor.detach().clone() for name, tensor in live.items()}
    try:
        with torch.no_grad():
            for name, tensor in live.items():
                tensor.copy_(state.tensors[name])
        yield
    finally:
        with torch.no_grad():
            for name, tensor in live.items():
                tensor.copy_(own[name])
