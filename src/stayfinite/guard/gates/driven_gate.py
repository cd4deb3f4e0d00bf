"""Gate of a framework-driven training: it decides, and the framework steps."""

from __future__ import annotations

from typing import ClassVar

from stayfinite.guard.gates.gates import JudgedStep, TrainingSetup
from stayfinite.measure.gradients import clip_gradients
from stayfinite.measure.reading import Reading


class DrivenGate:
    """Judges a step with one host sync on accelerators.

    It does not step, and clips only unusual gradients. Frameworks ask at once whether the step was taken (for the
    schedule, for logging), so the answer cannot be late.
    """

    sentence: ClassVar[str] = "the framework asks before each optimizer step"

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Judge the step; restore the buffers if it is refused or shows a fault."""
        setup = self._setup
        decided = setup.hear(reading)
        decision = decided.judgement.decision
        if decision.refused or decision.fault:
            setup.buffers.restore()
        if not decision.refused and (limit := decision.limit) is not None:
            # The framework clips and steps later, with a gradient that is no longer unusual.
            clip_gradients(reading.gradients, None, limit=limit)
        if setup.alarm is not None and decision.notable:
            # In monitor mode the weights change afterwards, so explain the step now.
            with setup.buffers.as_kept():
                setup.alarm(decided)
        return [decided]

    def drain(self) -> list[JudgedStep]:
        return []

    def allow(self, factor: float) -> None:
        """Nothing to do: the judge knows the factor."""
