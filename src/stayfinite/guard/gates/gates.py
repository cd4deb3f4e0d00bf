"""The gate in front of the weights: a step passes whole or not at all.

Three gates, one duty: clip, let the optimizer step if the step is good, advance the schedule with it, and tell what
became known. :class:`HostGate` reads the numbers and then acts. :class:`DeviceGate` acts on a flag that never leaves
the device and hears the numbers later. :class:`OpenGate` lets everything pass and only listens. A fourth, in
``driven_gate.py``, leaves the acting to a framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.judge import Judgement
from stayfinite.core.policy import Policy
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, Verdict
from stayfinite.guard.gates.buffers import RunningBuffers
from stayfinite.guard.gates.cut import LearningRateCut
from stayfinite.guard.gates.optimizers import flagged, would_start_from_garbage
from stayfinite.guard.gates.schedule import Schedule
from stayfinite.measure.fused import kernels_run_on
from stayfinite.measure.gradients import can_be_divided, clip_gradients
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.reading import Envelope, Opened, Reading, pack, unpack
from stayfinite.measure.roster import Roster
from stayfinite.measure.spikes import DeviceSpikes

LAG = 2
"""With several ranks a step is heard of exactly so many steps later, so that all of them act on it at the same one."""


@dataclass(slots=True)
class Workshop:
    """What a gate works with; ``roster`` is renewed when the optimizer gets further parameters."""

    optimizer: Optimizer
    schedule: Schedule
    buffers: RunningBuffers
    scaler: GradScaler | None
    max_norm: float | None
    roster: Roster
    judge: Callable[[Signals, Verdict | None, float], Judgement]
    cut: LearningRateCut
    many: bool
    """Whether there are several ranks, which must hear of a step at the same later step."""
    driven: bool = False
    """Whether a framework clips, steps and moves the schedule, and only asks whether it may."""
    fold_clip: bool = False
    """Whether an optimizer that can divide gradients as it reads them is left to clip them. That spares a pass over
    the gradients, and is clip_grad_norm_ but for the last bit."""
    alarm: Callable[[Heard], None] | None = None
    """Hears of a step before it is taken, where the gate lets even a bad one pass; buffers are then as before it."""

    def hear(self, reading: Reading) -> Heard:
        """Wait for a step's numbers, and judge them."""
        envelope, values = pack(reading)
        opened = unpack(envelope, values.tolist(), self.roster)
        return Heard(opened, self.judge(opened.signals, None, math.inf))

    def step(self) -> None:
        """Let the optimizer step, at the learning rate that is in force."""
        with self.cut.applied(self.optimizer):
            self.optimizer.step()

    def clip(self, reading: Reading, limit: float | None = None) -> None:
        """Clip the gradients, where a norm was given, and limit those of an unusual step."""
        if self.max_norm is not None or limit is not None:
            clip_gradients(reading.gradients, self.max_norm, limit=limit)

    def clip_by_division(self, reading: Reading, divisor: Tensor, *, bounds: bool) -> Tensor | None:
        """What a fused optimizer is to divide the gradients by. Where it cannot, they are clipped here: None.

        Arguments:
            reading: the step.
            divisor: what the device has found.
            bounds: whether the policy limits unusual gradients, so that it may be above 1 without clipping.
        """
        if self.max_norm is None and not bounds:
            return None
        if self.fold_clip and can_be_divided(reading.gradients):
            return divisor
        clip_gradients(reading.gradients, self.max_norm, divisor=divisor if bounds else None)
        return None


@dataclass(frozen=True, slots=True)
class Heard:
    """A step of which everything is known on the host."""

    opened: Opened
    judgement: Judgement


class Gate(Protocol):
    """Takes a step, and tells of those that have become known."""

    sentence: ClassVar[str]
    """How it works, for ``guard.describe()``."""

    def take(self, reading: Reading) -> list[Heard]:
        """Do the step or refuse it."""

    def drain(self) -> list[Heard]:
        """Wait for everything that is under way."""

    def allow(self, factor: float) -> None:
        """From now on a gradient may be this many times the usual norm."""


class HostGate:
    """Reads the step's numbers, then decides. Works with every optimizer; on an accelerator it waits once a step."""

    sentence: ClassVar[str] = "the host checks each step before the optimizer runs"

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop

    def take(self, reading: Reading) -> list[Heard]:
        """Do the step or refuse it; either way it is known at once."""
        shop = self._shop
        heard = shop.hear(reading)
        decision = heard.judgement.decision
        if decision.refused or decision.fault:
            shop.buffers.restore()
        if not decision.refused:
            shop.clip(reading, decision.limit)
            shop.step()
            shop.buffers.keep()
            shop.schedule.advance()
        return [heard]

    def drain(self) -> list[Heard]:
        """Nothing is ever under way."""
        return []

    def allow(self, factor: float) -> None:
        """The judge knows."""


class _Listening:
    """The half of a gate that hears of its steps late."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._mail: Mailbox[tuple[Envelope, Roster]] = Mailbox()

    def drain(self) -> list[Heard]:
        """Wait for everything that is under way."""
        return self._collect(wait=True)

    def allow(self, factor: float) -> None:
        """The judge knows."""

    def _collect(self, *, wait: bool = False) -> list[Heard]:
        heard = []
        leave = LAG if self._shop.many and not wait else None
        for (envelope, roster), values in self._mail.collect(wait=wait, leave=leave):
            opened = unpack(envelope, values, roster)
            heard.append(Heard(opened, self._conclude(opened)))
        return heard

    def _conclude(self, opened: Opened) -> Judgement:
        return self._shop.judge(opened.signals, None, math.inf)


class DeviceGate(_Listening):
    """Computes the verdict on the device and hands it to the fused optimizer. The host never waits.

    Until the host hears of a refusal, a few steps later, the schedule is one position ahead; it is then put right.
    """

    sentence: ClassVar[str] = "the fused optimizer reads the verdict on the device; no host sync"

    def __init__(self, shop: Workshop, policy: Policy, state: SpikeState) -> None:
        super().__init__(shop)
        device = shop.roster.device
        self._spikes = DeviceSpikes(policy, device, state, max_norm=shop.max_norm, by_kernel=kernels_run_on(device))
        self._bounds = policy.spikes == "bound"
        self._skipped: set[int] = set()
        """Steps for which the host did wait, and did not step: the schedule has not moved for them."""

    def take(self, reading: Reading) -> list[Heard]:
        """Do the step or refuse it, as the device finds; return what is known by now."""
        shop = self._shop
        if reading.mismatch:
            # The host has found out by itself, and has waited for it: the device need not be asked.
            heard = self.drain()
            shop.buffers.restore()
            return [*heard, shop.hear(reading)]
        self._spikes.judge(reading.loss, reading.gradients.total)
        refused = self._spikes.refused
        envelope, values = pack(reading, self._spikes.judged)
        divisor = shop.clip_by_division(reading, self._spikes.divisor, bounds=self._bounds)
        if would_start_from_garbage(shop.optimizer) and refused.item():
            self._skipped.add(reading.step)
        else:
            with flagged(shop.optimizer, refused, divisor):
                shop.step()
            shop.schedule.advance_ahead()
        shop.buffers.settle(self._spikes.unsettled)
        # Only now: a step that failed above is not heard of, as the schedule has not moved for it.
        self._mail.post((envelope, shop.roster), values)
        return self._collect()

    def act(self, reading: Reading) -> tuple[Envelope, Tensor]:
        """The device's part of a step alone, for a CUDA graph: the optimizer's state exists, no cut is put on here."""
        shop = self._shop
        self._spikes.judge(reading.loss, reading.gradients.total)
        packed = pack(reading, self._spikes.judged)
        divisor = shop.clip_by_division(reading, self._spikes.divisor, bounds=self._bounds)
        with flagged(shop.optimizer, self._spikes.refused, divisor):
            shop.optimizer.step()
        shop.buffers.settle(self._spikes.unsettled)
        return packed

    def acted(self, envelope: Envelope, values: Tensor) -> list[Heard]:
        """The host's part of such a step, after the graph was launched; return what is known by now."""
        self._shop.schedule.advance_ahead()
        self._mail.post((envelope, self._shop.roster), values)
        return self._collect()

    def allow(self, factor: float) -> None:
        """Tell the device."""
        self._spikes.allow(factor)

    def _conclude(self, opened: Opened) -> Judgement:
        judgement = self._shop.judge(opened.signals, opened.verdict, opened.limit)
        if opened.signals.step in self._skipped:
            self._skipped.remove(opened.signals.step)
        else:
            self._shop.schedule.settle(refused=judgement.decision.refused)
        return judgement


class OpenGate(_Listening):
    """Lets every step pass exactly as a plain loop would, and only listens."""

    sentence: ClassVar[str] = "monitor only: every step is taken"

    def take(self, reading: Reading) -> list[Heard]:
        """Do the step; return what is known by now."""
        shop = self._shop
        envelope, values = pack(reading)
        self._mail.post((envelope, shop.roster), values)
        # On the CPU that is this very step; afterwards the weights are no longer those that made it bad.
        heard = self._collect()
        if shop.alarm is not None:
            for each in heard:
                if each.judgement.decision.notable and each.opened.signals.step == reading.step:
                    with shop.buffers.as_kept():
                        shop.alarm(each)
        shop.clip(reading)
        if shop.scaler is not None and reading.loss_scale is not None:
            shop.scaler.step(shop.optimizer)
        else:
            shop.step()
        shop.schedule.advance()
        if shop.alarm is not None:
            shop.buffers.keep()
        return heard
