"""The spike test of ``stayfinite.core.spikes`` on a device: the same window, the same verdict, no host wait."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stayfinite.core.policy import Policy
from stayfinite.core.spikes import CLEARANCE, LEAST_SAMPLES, MAD_TO_SIGMA, SpikeState, Verdict


class DeviceSpikes:
    """The windows of the last accepted losses and gradient norms, on a device.

    Row 0 of every tensor belongs to the loss, row 1 to the gradient norm. A free place in a window holds NaN, which
    sorts to the end. All state is updated in place, so that on CUDA the whole test is one graph: its four dozen tiny
    kernels cost a single launch.
    """

    def __init__(self, policy: Policy, device: torch.device, state: SpikeState | None = None) -> None:
        self._policy = policy
        self._device = device
        # The host's floats are doubles; the same width here makes both tests agree.
        self._width = torch.float32 if device.type == "mps" else torch.float64
        self._floor = self._tensor([policy.loss_floor, policy.norm_floor])
        self._slots = torch.arange(policy.window, device=device)
        self._bits = torch.tensor([Verdict.LOSS_SPIKE, Verdict.GRADIENT_SPIKE], device=device)

        self._raw = self._tensor([0.0, 0.0])
        self._raw_loss, self._raw_norm = self._raw.unbind()
        self._window = self._tensor([[math.nan] * policy.window] * 2)
        self._count = torch.zeros(2, dtype=torch.int64, device=device)
        self._next = torch.zeros(2, dtype=torch.int64, device=device)
        self._strikes = torch.zeros((), dtype=torch.int64, device=device)
        self._quiet = torch.zeros((), dtype=torch.int64, device=device)
        self.verdict = torch.zeros((), dtype=torch.int64, device=device)
        """Bits of :class:`Verdict` for the last step that was judged."""
        self.refused = torch.zeros((), dtype=torch.float32, device=device)
        """1 if that step must be kept from the weights, else 0: what fused optimizers read as ``found_inf``."""

        self._graph = self._capture() if device.type == "cuda" else None
        self.load(state or SpikeState())

    def load(self, state: SpikeState) -> None:
        """Continue from what the host remembers."""
        window = self._policy.window
        rows = (state.losses[-window:], state.norms[-window:])
        self._window.copy_(self._tensor([[*row, *[math.nan] * (window - len(row))] for row in rows]))
        self._count.copy_(torch.tensor([len(row) for row in rows]))
        self._next.copy_(self._count % window)
        self._strikes.fill_(state.strikes)
        self._quiet.fill_(state.quiet)

    def judge(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Judge a step and move the windows on; returns ``verdict``, which holds until the next step is judged."""
        self._raw_loss.copy_(loss, non_blocking=True)
        self._raw_norm.copy_(norm, non_blocking=True)
        # A graph cannot be launched while another one is recorded: that one then holds the test itself.
        if self._graph is None or torch.cuda.is_current_stream_capturing():
            self._compute()
        else:
            self._graph.replay()
        return self.verdict

    def _capture(self) -> torch.cuda.CUDAGraph:
        with torch.cuda.device(self._device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # Sorting and the like set themselves up at their first call, which a graph must not record.
                self._compute()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # Other threads, such as those that pin a loader's memory, may go on meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._compute()
        return graph

    def _compute(self) -> None:
        not_finite = ~torch.isfinite(self._raw).all()
        sample = torch.stack([torch.asinh(self._raw[0]), torch.log(self._raw[1])])
        above = (sample > self._bound()) & ~not_finite
        spike = above.any()
        new_level = spike & (self._strikes >= self._policy.level_change_after)
        accepted = ~(not_finite | (spike & ~new_level))
        self._advance(sample, spike, new_level, accepted)
        flags = not_finite * int(Verdict.NOT_FINITE) + new_level * int(Verdict.NEW_LEVEL)
        self.verdict.copy_((self._bits * above).sum() + flags)
        self.refused.copy_(~accepted)

    def _bound(self) -> Tensor:
        policy = self._policy
        ordered = self._window.sort(dim=1).values
        middle = self._median(ordered)
        deviation = self._median((self._window - middle[:, None]).abs().sort(dim=1).values)
        highest = ordered.gather(1, (self._count - 1).clamp(min=0)[:, None])[:, 0]
        widened = torch.where(self._count < policy.warmup, self._floor * policy.warmup_widening, self._floor)
        sigma = torch.maximum(MAD_TO_SIGMA * deviation, widened)
        bound = torch.maximum(middle + policy.sigmas * sigma, highest + CLEARANCE * sigma)
        return torch.where(self._count < LEAST_SAMPLES, math.inf, bound)

    def _median(self, ordered: Tensor) -> Tensor:
        places = torch.stack([(self._count - 1).clamp(min=0) // 2, self._count // 2], dim=1)
        places = places.clamp(max=self._policy.window - 1)
        return ordered.gather(1, places).mean(dim=1)

    def _advance(self, sample: Tensor, spike: Tensor, new_level: Tensor, accepted: Tensor) -> None:
        size = self._policy.window
        count = torch.where(new_level, 0, self._count)
        place = torch.where(new_level, 0, self._next)
        # A gradient norm of exactly 0 has no logarithm and says nothing about the usual size.
        enters = accepted & torch.isfinite(sample)
        here = (self._slots == place[:, None]) & enters[:, None]
        window = torch.where(new_level, math.nan, self._window)
        self._window.copy_(torch.where(here, sample[:, None], window))
        self._count.copy_((count + enters).clamp(max=size))
        self._next.copy_((place + enters) % size)

        struck = spike & ~new_level
        quiet = torch.where(new_level, 0, self._quiet) + 1
        forgiven = new_level | (accepted & (quiet >= size))
        strikes = torch.where(forgiven, 0, self._strikes)
        self._strikes.copy_(torch.where(struck, self._strikes + 1, strikes))
        self._quiet.copy_(torch.where(struck, 0, torch.where(accepted, quiet.clamp(max=size), self._quiet)))

    def _tensor(self, values: list[float] | list[list[float]]) -> Tensor:
        return torch.tensor(values, dtype=self._width, device=self._device)
