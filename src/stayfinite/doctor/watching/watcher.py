"""Watch a program train through torch hooks."""

from __future__ import annotations

from stayfinite.doctor.record import Program
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching.batches import BatchWatcher
from stayfinite.doctor.watching.calls import CallWatcher
from stayfinite.doctor.watching.losses import LossWatcher
from stayfinite.doctor.watching.notes import Notes
from stayfinite.doctor.watching.rates import RateWatcher
from stayfinite.doctor.watching.steps import OnBad, StepWatcher


class Watcher:
    """All watchers of a program.

    Arguments:
        on_bad: called once, at the first non-finite step, before its weights change.
        guard: refuse non-finite steps.
        strict: end the program at the first one.
    """

    def __init__(self, on_bad: OnBad | None = None, *, guard: bool = False, strict: bool = False) -> None:
        self.notes = Notes()
        self.steps = StepWatcher(self.notes, on_bad, guard=guard, strict=strict)
        self._watchers = (
            self.steps, RateWatcher(self.notes, self.steps), BatchWatcher(self.notes), CallWatcher(self.notes),
            LossWatcher(self.notes),
        )  # fmt: skip
        self._stand_ins = StandIns()

    @property
    def program(self) -> Program:
        return self.notes.program

    def attach(self) -> None:
        for each in self._watchers:
            each.attach(self._stand_ins)

    def detach(self) -> None:
        self._stand_ins.off()
