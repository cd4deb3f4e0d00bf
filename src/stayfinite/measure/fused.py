"""Whether a training's numbers are read by kernels of our own, and those kernels."""

from __future__ import annotations

import copy
import importlib.util
import os
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from stayfinite.measure.movement import Movement
from stayfinite.measure.one_pass import COLUMNS, Facts, OnePass
from stayfinite.measure.roster import Roster

SWITCH = "STAYFINITE_KERNELS"
"""Set to 0 in the environment, this leaves reading and clipping to torch alone: a healthy training then has the bits of
a loop with clip_grad_norm_."""

LEAST_CAPABILITY = (7, 5)


class Fused:
    """The kernels for one training on one device.

    What they cannot read is left to torch. Where a kernel cannot be built at all (no compiler, say), everything is,
    from then on.
    """

    def __init__(self, device: torch.device) -> None:
        self._gradients = OnePass(device)
        self._weights = Movement(device)
        self._looked = self._moved = False
        self._plan: object = None
        """That of the gradients when weights were last looked at."""
        self.trouble = ""
        """Why they are out of use, if they are."""

    def look(self, groups: Sequence[list[Tensor]]) -> Facts | None:
        """What is to be known of these gradients; None if torch has to find it out."""
        if self.trouble:
            return None
        tensors = groups[0] if len(groups) == 1 else list(chain.from_iterable(groups))
        try:
            facts = self._gradients.read(tensors)
        except Exception as error:
            # What has worked once is not a matter of how the kernels are built.
            if self._looked:
                raise
            self.trouble = f"{type(error).__name__}: {error}"
            return None
        self._looked = self._looked or facts is not None
        return facts

    def watch(self, weights: Sequence[Tensor]) -> Movement | None:
        """Keep an eye on how far these weights move; None if torch has to."""
        if self.trouble:
            return None
        # Weights of another size or dtype have gradients of another size or dtype, which are looked at at every step.
        if self._gradients.plan is not self._plan:
            self._plan = self._gradients.plan
            self._weights.forget()
        if not self._weights.begin(weights):
            return None
        self._moved = True
        return self._weights

    def rehearse(self, weights: Sequence[Tensor]) -> None:
        """Make all that watching these needs: while a CUDA graph is recorded no kernel can be loaded."""
        if (movement := self.watch(weights)) is not None:
            movement.ratios(torch.empty(len(weights), COLUMNS, dtype=torch.float64, device=weights[0].device))

    def fork(self) -> Fused:
        """The same for a CUDA graph, which needs tables of its own that stay where they are."""
        fork = copy.copy(self)
        if self._looked:
            fork._gradients = self._gradients.fork()
        if self._moved:
            fork._weights = self._weights.fork()
        return fork


def switched_off() -> bool:
    """Whether the person wants torch alone."""
    return os.environ.get(SWITCH) == "0"


def fused_for(roster: Roster) -> Fused | None:
    """The kernels for these parameters; None where they have no use: not on one CUDA device, or without Triton."""
    devices = {device for device, _ in roster.places}
    if len(devices) != 1:
        return None
    device = next(iter(devices))
    return Fused(device) if kernels_run_on(device) else None


def kernels_run_on(device: torch.device) -> bool:
    """Whether our own kernels are wanted and, as far as can be told without building one, can run there."""
    if switched_off() or device.type != "cuda" or torch.version.hip or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
