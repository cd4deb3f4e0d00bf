"""The spike test of ``stayfinite.core.spikes`` on a device: the same window, the same verdict, no host wait."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stayfinite.core.policy import Policy
from stayfinite.core.spikes import LEAST_SAMPLES, MAD_TO_SIGMA, SpikeState, Verdict


class DeviceSpikes:
    """The windows of the last accepted losses and gradient norms, on a device.

    Row 0 of every tensor belongs to the loss, row 1 to the gradient norm. A free place in a window holds NaN, which
    sorts to the end.
    """

    def __init__(self, policy: Policy, device: torch.device, state: SpikeState | None = None) -> None:
        self.policy = policy
        # The host's floats are doubles; the same width here makes both tests agree.
        self.dtype = torch.float32 if device.type == "mps" else torch.float64
        self._floor = self._tensor([policy.loss_floor, policy.norm_floor], device)
        self._slots = torch.arange(policy.window, device=device)
        self._bits = torch.tensor([Verdict.LOSS_SPIKE, Verdict.GRADIENT_SPIKE], device=device)
        self.load(state or SpikeState(), device)

    def load(self, state: SpikeState, device: torch.device) -> None:
        """Continue from what the host remembers."""
        rows = (state.losses, state.norms)
        padded = [[*row, *[math.nan] * (self.policy.window - len(row))] for row in rows]
        self._window = self._tensor(padded, device)
        self._count = torch.tensor([len(row) for row in rows], device=device)
        self._next = self._count % self.policy.window
        self._strikes = torch.tensor(state.strikes, device=device)
        self._quiet = torch.tensor(state.quiet, device=device)

    def judge(self, loss: Tensor, norm: Tensor) -> Tensor:
        """The verdict on a step, an int64 scalar on the device; the windows move on accordingly."""
        raw = torch.stack([loss.to(self.dtype), norm.to(self.dtype)])
        not_finite = ~torch.isfinite(raw).all()
        sample = torch.stack([torch.asinh(raw[0]), torch.log(raw[1])])
        above = (sample > self._bound()) & ~not_finite
        spike = above.any()
        new_level = spike & (self._strikes >= self.policy.level_change_after)
        accepted = ~(not_finite | (spike & ~new_level))
        self._advance(sample, spike, new_level, accepted)
        return (self._bits * above).sum() + not_finite * int(Verdict.NOT_FINITE) + new_level * int(Verdict.NEW_LEVEL)

    def _bound(self) -> Tensor:
        policy = self.policy
        ordered = self._window.sort(dim=1).values
        middle = self._median(ordered)
        deviation = self._median((self._window - middle[:, None]).abs().sort(dim=1).values)
        highest = ordered.gather(1, (self._count - 1).clamp(min=0)[:, None])[:, 0]
        widened = torch.where(self._count < policy.warmup, self._floor * policy.warmup_widening, self._floor)
        sigma = torch.maximum(MAD_TO_SIGMA * deviation, widened)
        bound = torch.maximum(middle + policy.sigmas * sigma, highest + sigma)
        return torch.where(self._count < LEAST_SAMPLES, math.inf, bound)

    def _median(self, ordered: Tensor) -> Tensor:
        places = torch.stack([(self._count - 1).clamp(min=0) // 2, self._count // 2], dim=1)
        places = places.clamp(max=self.policy.window - 1)
        return ordered.gather(1, places).mean(dim=1)

    def _advance(self, sample: Tensor, spike: Tensor, new_level: Tensor, accepted: Tensor) -> None:
        window = self.policy.window
        self._window = torch.where(new_level, math.nan, self._window)
        self._count = torch.where(new_level, 0, self._count)
        self._next = torch.where(new_level, 0, self._next)
        # A gradient norm of exactly 0 has no logarithm and says nothing about the usual size.
        enters = accepted & torch.isfinite(sample)
        here = (self._slots == self._next[:, None]) & enters[:, None]
        self._window = torch.where(here, sample[:, None], self._window)
        self._count = (self._count + enters).clamp(max=window)
        self._next = (self._next + enters) % window

        quiet = torch.where(new_level, 0, self._quiet) + 1
        struck = spike & ~new_level
        self._strikes = torch.where(
            struck, self._strikes + 1, torch.where(new_level | (accepted & (quiet >= window)), 0, self._strikes)
        )
        self._quiet = torch.where(struck, 0, torch.where(accepted, quiet.clamp(max=window), self._quiet))

    def _tensor(self, values: list[float] | list[list[float]], device: torch.device) -> Tensor:
        return torch.tensor(values, dtype=self.dtype, device=device)
