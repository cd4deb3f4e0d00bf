"""The gate of a training that a framework drives: it says whether a step may be taken, and the framework takes it."""

from __future__ import annotations

from typing import ClassVar

from stayfinite.guard.gates.gates import JudgedStep, TrainingSetup
from stayfinite.measure.gradients import clip_gradients
from stayfinite.measure.reading import Reading


class DrivenGate:
    """Reads the step's numbers and judges. On an accelerator the host waits for them once a step.

    It steps nothing, and clips nothing but an unusual gradient. A framework asks at once whether its step was taken
    (whether the schedule may move, what to log), so the answer cannot come late.
    """

    sentence: ClassVar[str] = "the framework asks before each optimizer step"

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Judge the step; of one that is refused, or shows a fault, the buffers are put back here."""
        setup = self._setup
        heard = setup.hear(reading)
        decision = heard.judgement.decision
        if decision.refused or decision.fault:
            setup.buffers.restore()
        if not decision.refused and (limit := decision.limit) is not None:
            # The framework clips and steps later; what it finds then is a gradient that is not unusual any more.
            clip_gradients(reading.gradients, None, limit=limit)
        if setup.alarm is not None and decision.notable:
            # While watching: afterwards the weights are no longer those that made the step bad.
            with setup.buffers.as_kept():
                setup.alarm(heard)
        return [heard]

    def drain(self) -> list[JudgedStep]:
        """Nothing is ever under way."""
        return []

    def allow(self, factor: float) -> None:
        """The judge knows."""
