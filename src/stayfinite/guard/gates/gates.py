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
class TrainingSetup:
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
    alarm: Callable[[JudgedStep], None] | None = None
    """Hears of a step before it is taken, where the gate lets even a bad one pass; buffers are then as before it."""

    def hear(self, reading: Reading) -> JudgedStep:
        """Wait for a step's numbers, and judge them."""
        envelope, values = pack(reading)
        opened = unpack(envelope, values.tolist(), self.roster)
        return JudgedStep(opened, self.judge(opened.signals, None, math.inf))

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
class JudgedStep:
    """A step of which everything is known on the host."""

    opened: Opened
    judgement: Judgement


class Gate(Protocol):
    """Takes a step, and tells of those that have become known."""

    sentence: ClassVar[str]
    """How it works, for ``guard.describe()``."""

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Do the step or refuse it."""

    def drain(self) -> list[JudgedStep]:
        """Wait for everything that is under way."""

    def allow(self, factor: float) -> None:
        """From now on a gradient may be this many times the usual norm."""


class HostGate:
    """Reads the step's numbers, then decides. Works with every optimizer; on an accelerator it waits once a step."""

    sentence: ClassVar[str] = "the host checks each step before the optimizer runs"

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Do the step or refuse it; either way it is known at once."""
        setup = self._setup
        heard = setup.hear(reading)
        decision = heard.judgement.decision
        if decision.refused or decision.fault:
            setup.buffers.restore()
        if not decision.refused:
            setup.clip(reading, decision.limit)
            setup.step()
            setup.buffers.keep()
            setup.schedule.advance()
        return [heard]

    def drain(self) -> list[JudgedStep]:
        """Nothing is ever under way."""
        return []

    def allow(self, factor: float) -> None:
        """The judge knows."""


class _Listening:
    """The half of a gate that hears of its steps late."""

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup
        self._mail: Mailbox[tuple[Envelope, Roster]] = Mailbox()

    def drain(self) -> list[JudgedStep]:
        """Wait for everything that is under way."""
        return self._collect(wait=True)

    def allow(self, factor: float) -> None:
        """The judge knows."""

    def _collect(self, *, wait: bool = False) -> list[JudgedStep]:
        heard = []
        leave = LAG if self._setup.many and not wait else None
        for (envelope, roster), values in self._mail.collect(wait=wait, leave=leave):
            opened = unpack(envelope, values, roster)
            heard.append(JudgedStep(opened, self._conclude(opened)))
        return heard

    def _conclude(self, opened: Opened) -> Judgement:
        return self._setup.judge(opened.signals, None, math.inf)


class DeviceGate(_Listening):
    """Computes the verdict on the device and hands it to the fused optimizer. The host never waits.

    Until the host hears of a refusal, a few steps later, the schedule is one position ahead; it is then put right.
    """

    sentence: ClassVar[str] = "the fused optimizer reads the verdict on the device; no host sync"

    def __init__(self, setup: TrainingSetup, policy: Policy, state: SpikeState) -> None:
        super().__init__(setup)
        device = setup.roster.device
        self._spikes = DeviceSpikes(policy, device, state, max_norm=setup.max_norm, by_kernel=kernels_run_on(device))
        self._bounds = policy.spikes == "bound"
        self._skipped: set[int] = set()
        """Steps for which the host did wait, and did not step: the schedule has not moved for them."""

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Do the step or refuse it, as the device finds; return what is known by now."""
        setup = self._setup
        if reading.mismatch:
            # The host has found out by itself, and has waited for it: the device need not be asked.
            heard = self.drain()
            setup.buffers.restore()
            return [*heard, setup.hear(reading)]
        self._spikes.judge(reading.loss, reading.gradients.total)
        refused = self._spikes.refused
        envelope, values = pack(reading, self._spikes.judged)
        divisor = setup.clip_by_division(reading, self._spikes.divisor, bounds=self._bounds)
        if would_start_from_garbage(setup.optimizer) and refused.item():
            self._skipped.add(reading.step)
        else:
            with flagged(setup.optimizer, refused, divisor):
                setup.step()
            setup.schedule.advance_ahead()
        setup.buffers.settle(self._spikes.unsettled)
        # Only now: a step that failed above is not heard of, as the schedule has not moved for it.
        self._mail.post((envelope, setup.roster), values)
        return self._collect()

    def act(self, reading: Reading) -> tuple[Envelope, Tensor]:
        """The device's part of a step alone, for a CUDA graph: the optimizer's state exists, no cut is put on here."""
        setup = self._setup
        self._spikes.judge(reading.loss, reading.gradients.total)
        packed = pack(reading, self._spikes.judged)
        divisor = setup.clip_by_division(reading, self._spikes.divisor, bounds=self._bounds)
        with flagged(setup.optimizer, self._spikes.refused, divisor):
            setup.optimizer.step()
        setup.buffers.settle(self._spikes.unsettled)
        return packed

    def acted(self, envelope: Envelope, values: Tensor) -> list[JudgedStep]:
        """The host's part of such a step, after the graph was launched; return what is known by now."""
        self._setup.schedule.advance_ahead()
        self._mail.post((envelope, self._setup.roster), values)
        return self._collect()

    def allow(self, factor: float) -> None:
        """Tell the device."""
        self._spikes.allow(factor)

    def _conclude(self, opened: Opened) -> Judgement:
        judgement = self._setup.judge(opened.signals, opened.verdict, opened.limit)
        if opened.signals.step in self._skipped:
            self._skipped.remove(opened.signals.step)
        else:
            self._setup.schedule.settle(refused=judgement.decision.refused)
        return judgement


class OpenGate(_Listening):
    """Lets every step pass exactly as a plain loop would, and only listens."""

    sentence: ClassVar[str] = "monitor only: every step is taken"

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Do the step; return what is known by now."""
        setup = self._setup
        envelope, values = pack(reading)
        self._mail.post((envelope, setup.roster), values)
        # On the CPU that is this very step; afterwards the weights are no longer those that made it bad.
        heard = self._collect()
        if setup.alarm is not None:
            for each in heard:
                if each.judgement.decision.notable and each.opened.signals.step == reading.step:
                    with setup.buffers.as_kept():
                        setup.alarm(each)
        setup.clip(reading)
        if setup.scaler is not None and reading.loss_scale is not None:
            setup.scaler.step(setup.optimizer)
        else:
            setup.step()
        setup.schedule.advance()
        if setup.alarm is not None:
            setup.buffers.keep()
        return heard
