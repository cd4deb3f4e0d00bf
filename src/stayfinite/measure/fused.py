"""Stayfinite's own Triton kernels, and whether they are used."""

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
"""Set to 0 to use torch alone for reading and clipping: a healthy training is then bitwise equal to a loop with
clip_grad_norm_.
"""

LEAST_CAPABILITY = (7, 5)


class Fused:
    """Kernels for one training on one device.

    Unsupported tensors are left to torch. If a kernel cannot be built (no compiler, for example), everything is.
    """

    def __init__(self, device: torch.device) -> None:
        self._gradients = OnePass(device)
        self._weights = Movement(device)
        self._looked = self._moved = False
        self._plan: object = None
        """Plan of the gradients when the weights were last read."""
        self.trouble = ""
        """Why the kernels are disabled; empty if they are not."""

    def look(self, groups: Sequence[list[Tensor]]) -> Facts | None:
        """Statistics of these gradients; None if torch must compute them."""
        if self.trouble:
            return None
        tensors = groups[0] if len(groups) == 1 else list(chain.from_iterable(groups))
        try:
            facts = self._gradients.read(tensors)
        except Exception as error:
            # After a first success, an error is not a build problem.
            if self._looked:
                raise
            self.trouble = f"{type(error).__name__}: {error}"
            return None
        self._looked = self._looked or facts is not None
        return facts

    def watch(self, weights: Sequence[Tensor]) -> Movement | None:
        """Start measuring how far these weights move; None if torch must do it."""
        if self.trouble:
            return None
        # A new size or dtype of a weight changes its gradient too, and gradients are checked at every step.
        if self._gradients.plan is not self._plan:
            self._plan = self._gradients.plan
            self._weights.forget()
        if not self._weights.begin(weights):
            return None
        self._moved = True
        return self._weights

    def rehearse(self, weights: Sequence[Tensor]) -> None:
        """Load all kernels for :meth:`watch`: none can be loaded while a CUDA graph is captured."""
        if (movement := self.watch(weights)) is not None:
            movement.ratios(torch.empty(len(weights), COLUMNS, dtype=torch.float64, device=weights[0].device))

    def fork(self) -> Fused:
        """A copy for a CUDA graph, with address tables of its own that never move."""
        fork = copy.copy(self)
        if self._looked:
            fork._gradients = self._gradients.fork()
        if self._moved:
            fork._weights = self._weights.fork()
        return fork


def switched_off() -> bool:
    """Whether the user chose torch alone."""
    return os.environ.get(SWITCH) == "0"


def fused_for(roster: Roster) -> Fused | None:
    """Kernels for these parameters; None if they are not on one CUDA device or Triton is missing."""
    devices = {device for device, _ in roster.places}
    if len(devices) != 1:
        return None
    device = next(iter(devices))
    return Fused(device) if kernels_run_on(device) else None


def kernels_run_on(device: torch.device) -> bool:
    """Whether the kernels are enabled and can probably run on the device."""
    if switched_off() or device.type != "cuda" or torch.version.hip or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
