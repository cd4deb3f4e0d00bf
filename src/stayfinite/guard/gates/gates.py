"""The gate in front of the weights: a step passes completely or not at all.

A gate clips, steps the optimizer if the step is good, advances the schedule with it, and returns the decided steps.
:class:`HostGate` reads the numbers and then acts. :class:`DeviceGate` acts on a flag on the device and reads the
numbers later. :class:`OpenGate` lets everything pass and only monitors. The gate in ``choice.py`` leaves the
acting to a framework.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.judge import Judgement, Memory, judge
from stayfinite.core.ladder import Options
from stayfinite.core.policy import Policy
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, Verdict
from stayfinite.guard.gates.buffers import RunningBuffers
from stayfinite.guard.gates.optimizers import flagged, would_start_from_garbage
from stayfinite.guard.gates.schedule import LearningRateCut, Schedule
from stayfinite.measure.fused import kernels_run_on
from stayfinite.measure.gradients import can_be_divided, clip_gradients
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.reading import Envelope, Opened, Reading, pack, unpack
from stayfinite.measure.roster import Roster
from stayfinite.measure.spikes import DeviceSpikes


class Judge:
    """Judges steps in order and keeps the policy's memory."""

    def __init__(self, policy: Policy, max_norm: float | None) -> None:
        self.policy = policy
        self.memory = Memory()
        self.options: Callable[[], Options] = Options
        """Returns the actions available beyond a veto."""
        self.max_norm = max_norm
        """Gradient clipping norm."""

    def __call__(self, signals: Signals, verdict: Verdict | None, limit: float) -> Judgement:
        """Judge the next step; ``verdict`` and ``limit`` are those the device already acted on."""
        judgement = judge(
            signals,
            self.memory,
            self.policy,
            max_norm=self.max_norm,
            verdict=verdict,
            limit=limit,
            options=self.options(),
        )
        self.memory = judgement.memory
        return judgement


LAG = 2
"""With several ranks, a step is decided exactly this many steps later, so all ranks act on it at the same step."""


@dataclass(slots=True)
class TrainingSetup:
    """What a gate works with; ``roster`` is replaced when the optimizer gets more parameters."""

    optimizer: Optimizer
    schedule: Schedule
    buffers: RunningBuffers
    scaler: GradScaler | None
    max_norm: float | None
    roster: Roster
    judge: Callable[[Signals, Verdict | None, float], Judgement]
    cut: LearningRateCut
    many: bool
    """Whether there are several ranks, which must decide a step at the same later step."""
    driven: bool = False
    """Whether a framework clips, steps and advances the schedule, and the guard only decides."""
    fold_clip: bool = False
    """Whether an optimizer that can divide gradients while reading them does the clipping. Saves a pass over the
    gradients; equals clip_grad_norm_ except for the last bit.
    """
    alarm: Callable[[JudgedStep], None] | None = None
    """Called before a bad step is taken, if the gate lets it pass; buffers are as before the step."""

    def hear(self, reading: Reading) -> JudgedStep:
        """Wait for a step's numbers and judge them."""
        envelope, values = pack(reading)
        opened = unpack(envelope, values.tolist(), self.roster)
        return JudgedStep(opened, self.judge(opened.signals, None, math.inf))

    def step(self) -> None:
        """Step the optimizer with the learning rate in force."""
        with self.cut.applied(self.optimizer):
            self.optimizer.step()

    def clip(self, reading: Reading, limit: float | None = None) -> None:
        """Clip the gradients to ``max_norm``, and those of an unusual step to ``limit``."""
        if self.max_norm is not None or limit is not None:
            clip_gradients(reading.gradients, self.max_norm, limit=limit)

    def clip_by_division(self, reading: Reading, divisor: Tensor, *, bounds: bool) -> Tensor | None:
        """Return the divisor for a fused optimizer; None if not needed or if the gradients were clipped here instead.

        Arguments:
            bounds: whether the policy limits unusual gradients, so the divisor may exceed 1 without clipping.
        """
        if self.max_norm is None and not bounds:
            return None
        if self.fold_clip and can_be_divided(reading.gradients):
            return divisor
        clip_gradients(reading.gradients, self.max_norm, divisor=divisor if bounds else None)
        return None


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A decided step."""

    opened: Opened
    judgement: Judgement


class Gate(ABC):
    """Takes a step, and returns the steps decided by now."""

    sentence: ClassVar[str]
    """How it works, for ``guard.describe()``."""

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup

    @abstractmethod
    def take(self, reading: Reading) -> list[JudgedStep]:
        """Take the step or refuse it."""

    def drain(self) -> list[JudgedStep]:
        """Wait for all pending steps; there are none unless their numbers come late."""
        return []

    def allow(self, factor: float) -> None:  # noqa: B027  (most gates have nothing to tell)
        """Set the allowed multiple of the usual gradient norm; on the host the judge knows it."""

    def _heard(self, reading: Reading) -> JudgedStep:
        """Wait for the step's numbers and judge it; restore the buffers if it is refused or shows a fault."""
        decided = self._setup.hear(reading)
        decision = decided.judgement.decision
        if decision.refused or decision.fault:
            self._setup.buffers.restore()
        return decided


class HostGate(Gate):
    """Reads the numbers, then decides. Works with every optimizer; one host sync per step on accelerators."""

    sentence: ClassVar[str] = "the host checks each step before the optimizer runs"

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Take the step or refuse it; the result is known at once."""
        setup, decided = self._setup, self._heard(reading)
        decision = decided.judgement.decision
        if not decision.refused:
            setup.clip(reading, decision.limit)
            setup.step()
            setup.buffers.keep()
            setup.schedule.advance()
        return [decided]


class _Listening(Gate):
    """A gate that reads its steps' numbers late."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._mail: Mailbox[tuple[Envelope, Roster]] = Mailbox()

    def drain(self) -> list[JudgedStep]:
        return self._collect(wait=True)

    def _collect(self, *, wait: bool = False) -> list[JudgedStep]:
        decided = []
        leave = LAG if self._setup.many and not wait else None
        for (envelope, roster), values in self._mail.collect(wait=wait, leave=leave):
            opened = unpack(envelope, values, roster)
            decided.append(JudgedStep(opened, self._conclude(opened)))
        return decided

    def _conclude(self, opened: Opened) -> Judgement:
        return self._setup.judge(opened.signals, None, math.inf)


class DeviceGate(_Listening):
    """Computes the verdict on the device and passes it to the fused optimizer, without a host sync.

    Until the host learns of a refusal, a few steps later, the schedule is one position ahead; it is then corrected.
    """

    sentence: ClassVar[str] = "the fused optimizer reads the verdict on the device; no host sync"

    def __init__(self, setup: TrainingSetup, policy: Policy, state: SpikeState) -> None:
        super().__init__(setup)
        device = setup.roster.device
        self._spikes = DeviceSpikes(policy, device, state, max_norm=setup.max_norm, by_kernel=kernels_run_on(device))
        self._bounds = policy.spikes == "bound"
        self._skipped: set[int] = set()
        """Refused steps that the host waited for: the schedule did not advance for them."""

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Take the step or refuse it, as the device decides; return the steps decided by now."""
        setup = self._setup
        if reading.mismatch:
            # The host found the mismatch itself and already waited.
            decided = self.drain()
            setup.buffers.restore()
            return [*decided, setup.hear(reading)]
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
        # Post it last: a step that failed above must not be reported, as the schedule did not advance for it.
        self._mail.post((envelope, setup.roster), values)
        return self._collect()

    def act(self, reading: Reading) -> tuple[Envelope, Tensor]:
        """Device part of a step for a CUDA graph; the optimizer's state exists, and no rate cut is applied here."""
        setup = self._setup
        self._spikes.judge(reading.loss, reading.gradients.total)
        packed = pack(reading, self._spikes.judged)
        divisor = setup.clip_by_division(reading, self._spikes.divisor, bounds=self._bounds)
        with flagged(setup.optimizer, self._spikes.refused, divisor):
            setup.optimizer.step()
        setup.buffers.settle(self._spikes.unsettled)
        return packed

    def acted(self, envelope: Envelope, values: Tensor) -> list[JudgedStep]:
        """Host part of a graphed step, after the launch; return the steps decided by now."""
        self._setup.schedule.advance_ahead()
        self._mail.post((envelope, self._setup.roster), values)
        return self._collect()

    def allow(self, factor: float) -> None:
        """Pass the factor to the device."""
        self._spikes.allow(factor)

    def _conclude(self, opened: Opened) -> Judgement:
        judgement = self._setup.judge(opened.signals, opened.verdict, opened.limit)
        if opened.signals.step in self._skipped:
            self._skipped.remove(opened.signals.step)
        else:
            self._setup.schedule.settle(refused=judgement.decision.refused)
        return judgement


class OpenGate(_Listening):
    """Lets every step pass exactly as a plain loop would, and only monitors."""

    sentence: ClassVar[str] = "monitor only: every step is taken"

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Take the step; return the steps decided by now."""
        setup = self._setup
        envelope, values = pack(reading)
        self._mail.post((envelope, setup.roster), values)
        # On the CPU this includes the current step; explain it now, before the weights change.
        decided = self._collect()
        if setup.alarm is not None:
            for each in decided:
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
        return decided
