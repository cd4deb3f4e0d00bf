"""The spike test of ``stayfinite.core.spikes`` on a device: same window, same verdict, no host sync.

Also computes the divisor that clips or bounds the gradients.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stayfinite.core import spikes
from stayfinite.core.policy import Policy
from stayfinite.core.spikes import SpikeState, Verdict
from stayfinite.measure.gradients import CLIP_EPS
from stayfinite.measure.launching import Launcher, on_device

WIDEST = 1024
"""Longest window for the kernel, which compares all pairs of samples."""

WARPS = 8

MODES = {"ignore": 0, "refuse": 1, "bound": 2}
"""Spike modes of the kernel."""


class DeviceSpikes:
    """Windows of the last accepted losses and gradient norms, on a device.

    Row 0 of every tensor is the loss, row 1 the gradient norm; the first ``count`` entries of a window are used. All
    state is updated in place. On CUDA the test is one Triton kernel or, if it cannot be built, a graph of about 50
    torch kernels.

    Arguments:
        state: initial state; None for an empty one.
        max_norm: gradient clipping norm; None for no clipping.
        by_kernel: use the Triton kernel if it can be built.
    """

    def __init__(
        self,
        policy: Policy,
        device: torch.device,
        state: SpikeState | None = None,
        *,
        max_norm: float | None = None,
        by_kernel: bool = False,
    ) -> None:
        self._policy = policy
        self._device = device
        self._by_kernel = by_kernel and policy.window <= WIDEST
        self._launchers: dict[tuple[torch.dtype, torch.dtype], Launcher] = {}
        """By dtypes of loss and norm; an entry means that the kernel has worked."""
        # As wide as the host's floats, so both tests agree.
        self._width = torch.float32 if device.type == "mps" else torch.float64
        self._slots = torch.arange(policy.window, device=device)
        self._bits = torch.tensor([Verdict.LOSS_SPIKE, Verdict.GRADIENT_SPIKE], device=device)

        self._settings = self._tensor(
            [policy.loss_floor, policy.norm_floor, policy.sigmas, policy.warmup_widening, spikes.MAD_TO_SIGMA,
             spikes.CLEARANCE, math.inf if max_norm is None else max_norm, CLIP_EPS, spikes.IMPLAUSIBLE]
        )  # fmt: skip
        self._mode = MODES[policy.spikes]
        self.judged = self._tensor([0.0, 0.0, 0.0, math.inf])
        """The last judged step: loss, gradient norm, bits of its :class:`Verdict`, highest compressed norm allowed."""
        self._raw = self.judged[:2]
        self._raw_loss, self._raw_norm, self.verdict, self._limit = self.judged.unbind()
        self._window = self._tensor([[0.0] * policy.window] * 2)
        self._count = torch.zeros(2, dtype=torch.int64, device=device)
        self._next = torch.zeros(2, dtype=torch.int64, device=device)
        self._strikes = torch.zeros((), dtype=torch.int64, device=device)
        self._quiet = torch.zeros((), dtype=torch.int64, device=device)
        self._course = self._tensor([0.0, 0.0])
        """Highest usual loss of the run, and log of the allowed multiple of the median norm."""
        self.refused = torch.zeros((), dtype=torch.float32, device=device)
        """1 if the step must not reach the weights, else 0: ``found_inf`` for fused optimizers."""
        self.divisor = torch.ones((), dtype=torch.float32, device=device)
        """Divisor that clips the gradients: ``grad_scale`` for fused optimizers. Always the same tensor, as compiled
        optimizers require.
        """

        self._graph: torch.cuda.CUDAGraph | None = None
        if not self._by_kernel:
            self._capture()
        self.load(state or SpikeState())

    def load(self, state: SpikeState) -> None:
        """Continue from a host state."""
        window = self._policy.window
        rows = (state.losses[-window:], state.norms[-window:])
        self._window.copy_(self._tensor([[*row, *[0.0] * (window - len(row))] for row in rows]))
        self._count.copy_(torch.tensor([len(row) for row in rows]))
        self._next.copy_(self._count % window)
        self._strikes.fill_(state.strikes)
        self._quiet.fill_(state.quiet)
        self._course[0].fill_(state.highest)
        self.allow(spikes.factor_of(state, self._policy))

    def allow(self, factor: float) -> None:
        """Set the allowed multiple of the median norm from the next step on."""
        self._course[1].fill_(math.log(factor))

    def unsettled(self) -> Tensor:
        """True if running statistics must exclude the last step: it was refused, or its loss is implausible."""
        return (self.refused > 0) | (self.verdict >= int(Verdict.FAULT))

    def judge(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Judge a step and update the windows; return ``verdict``, which is valid until the next step."""
        if self._by_kernel and self._launch(loss, norm):
            return self.verdict
        self._raw_loss.copy_(loss, non_blocking=True)
        self._raw_norm.copy_(norm, non_blocking=True)
        # A graph cannot be launched during another capture, which then records the test itself.
        if self._graph is None or torch.cuda.is_current_stream_capturing():
            self._compute()
        else:
            self._graph.replay()
        return self.verdict

    def _launch(self, loss: Tensor, norm: Tensor) -> bool:
        """Judge with the Triton kernel; False if it cannot be built, and torch judges from then on."""
        policy = self._policy
        where = [value.detach().to(self._device, non_blocking=True) for value in (loss, norm)]
        dtypes = (loss.dtype, norm.dtype)
        launch = self._launchers.get(dtypes) or Launcher()
        try:
            from stayfinite.measure.spike_kernel import judge_step

            with on_device(self._device):
                launch(
                    judge_step, 1,
                    *where, self._settings, self._window, self._count, self._next, self._strikes, self._quiet,
                    self._course, self.judged, self.refused, self.divisor,
                    policy.window, policy.warmup, policy.level_change_after, self._mode,
                    PADDED=1 << (policy.window - 1).bit_length(), warps=WARPS,
                )  # fmt: skip
        except Exception:
            # After a first success, an error is not a build problem.
            if self._launchers:
                raise
            self._by_kernel = False
            state = [each.clone() for each in self._state]
            self._capture()
            for each, before in zip(self._state, state, strict=True):
                each.copy_(before)
            return False
        self._launchers[dtypes] = launch
        return True

    @property
    def _state(self) -> tuple[Tensor, ...]:
        return self._window, self._count, self._next, self._strikes, self._quiet, self._course

    def _capture(self) -> None:
        """Record torch's kernels as a graph; this overwrites the state."""
        if self._device.type != "cuda":
            return
        with torch.cuda.device(self._device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # Sorting and others initialize on their first call, which a graph must not record.
                self._compute()
            torch.cuda.current_stream().wait_stream(side)
            self._graph = torch.cuda.CUDAGraph()
            # Other threads, such as a loader's pinning thread, may continue.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._compute()

    def _compute(self) -> None:
        not_finite = ~torch.isfinite(self._raw).all()
        sample = torch.stack([torch.asinh(self._raw[0]), torch.log(self._raw[1])])
        implausible = (self._course[0] > spikes.NEGLIGIBLE) & (self._raw[0] > spikes.IMPLAUSIBLE * self._course[0])
        bound = self._bound(implausible)
        above = (sample > bound) & ~not_finite & (self._mode != MODES["ignore"])
        spike = above.any()
        taken = spike & (self._mode == MODES["bound"])
        new_level = spike & ~taken & (self._strikes >= self._policy.level_change_after)
        accepted = ~(not_finite | (spike & ~new_level & ~taken))
        limit = torch.where(above[1] & taken, bound[1], math.inf)
        self._advance(torch.stack([sample[0], torch.minimum(sample[1], limit)]), spike, taken, new_level, accepted)
        flags = not_finite * int(Verdict.NOT_FINITE) + new_level * int(Verdict.NEW_LEVEL) + taken * int(Verdict.TAKEN)
        flags = flags + (taken & implausible) * int(Verdict.FAULT)
        self.verdict.copy_((self._bits * above).sum() + flags)
        self._limit.copy_(limit)
        self.refused.copy_(~accepted)
        highest, eps = self._settings[6], self._settings[7]
        clip = ((self._raw[1] + eps) / highest).clamp(min=1.0)
        self.divisor.copy_(torch.maximum(clip, self._raw[1] / limit.exp()))

    def _bound(self, implausible: Tensor) -> Tensor:
        policy = self._policy
        taken = self._slots < self._count[:, None]
        ordered = torch.where(taken, self._window, math.inf).sort(dim=1).values
        middle = self._median(ordered)
        apart = torch.where(taken, (self._window - middle[:, None]).abs(), math.inf)
        deviation = self._median(apart.sort(dim=1).values)
        highest = ordered.gather(1, (self._count - 1).clamp(min=0)[:, None])[:, 0]
        floor = self._settings[:2]
        widened = torch.where(self._count < policy.warmup, floor * policy.warmup_widening, floor)
        sigma = torch.maximum(spikes.MAD_TO_SIGMA * deviation, widened)
        usual = middle + policy.sigmas * sigma
        bound = torch.maximum(usual, highest + spikes.CLEARANCE * sigma)
        if self._mode == MODES["bound"]:
            wide = torch.where(implausible, middle[1], torch.maximum(usual[1], middle[1] + self._course[1]))
            bound = torch.stack([bound[0], wide])
        return torch.where(self._count < spikes.LEAST_SAMPLES, math.inf, bound)

    def _median(self, ordered: Tensor) -> Tensor:
        places = torch.stack([(self._count - 1).clamp(min=0) // 2, self._count // 2], dim=1)
        places = places.clamp(max=self._policy.window - 1)
        return ordered.gather(1, places).mean(dim=1)

    def _advance(self, sample: Tensor, spike: Tensor, taken: Tensor, new_level: Tensor, accepted: Tensor) -> None:
        size = self._policy.window
        count = torch.where(new_level, 0, self._count)
        place = torch.where(new_level, 0, self._next)
        # A gradient norm of exactly 0 has no logarithm and says nothing about the usual size.
        enters = accepted & torch.isfinite(sample)
        here = (self._slots == place[:, None]) & enters[:, None]
        self._window.copy_(torch.where(here, sample[:, None], self._window))
        self._count.copy_((count + enters).clamp(max=size))
        self._next.copy_((place + enters) % size)

        reached = torch.where(self._raw[0] < 0, spikes.SIGNED, self._raw[0])
        usual = accepted & ~spike & (reached > self._course[0])
        self._course[0].copy_(torch.where(usual, reached, self._course[0]))
        struck = spike & ~new_level & ~taken
        quiet = torch.where(new_level, 0, self._quiet) + 1
        forgiven = new_level | (accepted & (quiet >= size))
        strikes = torch.where(forgiven, 0, self._strikes)
        self._strikes.copy_(torch.where(struck, self._strikes + 1, strikes))
        self._quiet.copy_(torch.where(struck, 0, torch.where(accepted, quiet.clamp(max=size), self._quiet)))

    def _tensor(self, values: list[float] | list[list[float]]) -> Tensor:
        return torch.tensor(values, dtype=self._width, device=self._device)
