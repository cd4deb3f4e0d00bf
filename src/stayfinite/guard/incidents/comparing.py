"""Whether the known-good weights do better than the present ones, on the batches that come now."""

from __future__ import annotations

import math
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
from stayfinite.state.snapshots import Snapshot
from stayfinite.state.visiting import weights_of


class Losses(NamedTuple):
    """Of the same batches, with the same random numbers."""

    earlier: float
    """With the known-good weights."""
    present: float
    own: float | None
    """Of the unusual step's own batches with the known-good weights, where they were kept."""


class Comparison:
    """Runs the last batches again, with the weights of a snapshot and with the present ones.

    Arguments:
        parts: the training.
        ranks: all processes of it; each runs its own batches, and the mean counts.
        forward: the forward pass, if it is known.
        passes: the last batches, while an unusual step is on probation.
    """

    def __init__(self, parts: TrainingParts, ranks: Ranks, forward: ForwardPass, passes: Passes) -> None:
        self._parts, self._ranks, self._forward, self._passes = parts, ranks, forward, passes

    @property
    def possible(self) -> bool:
        """Whether batches can be run again. Those of sharded weights need all ranks, in step, at every layer."""
        return self._forward.function is not None and not self._sharded

    @cached_property
    def _sharded(self) -> bool:
        # Asked once a step, and there may be thousands of parameters.
        return is_sharded(self._parts.model)

    def with_weights_of(self, snapshot: Snapshot, unusual: int) -> Losses | None:
        """The losses of both; None where they could not be found. A collective.

        Arguments:
            snapshot: the known-good state.
            unusual: the step that is on probation.
        """
        found: Losses | None = None
        try:
            found = self._run(snapshot, self._passes.of(unusual))
        except Exception:  # whatever a forward pass may raise, memory among it
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
        """The loss of a step, as its batches add up to it."""
        losses = [float(self._loss(each)) for each in passes]
        return sum(losses) * share_of(passes)

    def _loss(self, each: Pass) -> Tensor:
        assert self._forward.function is not None
        device = next(iter(self._parts.parameters().values())).device
        dtype = None if each.autocast is None else str(each.autocast).removeprefix("torch.")
        restore_rng(each.rng)
        with autocast_for(device.type, dtype)():
            return self._forward.function(each.batch).detach()
