"""Record schedules, clipping and loss scales."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from stayfinite.doctor.frames import place_here
from stayfinite.doctor.record import ScheduleSeen
from stayfinite.doctor.replay import playing
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching.notes import Notes, Watching, safely
from stayfinite.doctor.watching.steps import StepWatcher


class RateWatcher(Watching):
    """Records schedules, clipping and GradScaler.

    Arguments:
        steps: notified when a step overflows at every scale.
    """

    def __init__(self, notes: Notes, steps: StepWatcher) -> None:
        super().__init__(notes)
        self._steps = steps
        self._in_schedule = 0

    def attach(self, stand_ins: StandIns) -> None:
        for kind in _with_step(LRScheduler):
            stand_ins.put(kind, "step", self.schedule_step)
        if "step" in vars(ReduceLROnPlateau) and not issubclass(ReduceLROnPlateau, LRScheduler):
            stand_ins.put(ReduceLROnPlateau, "step", self.schedule_step)
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            self.before(stand_ins, module, "clip_grad_norm_", self._note_clip)
        self.before(stand_ins, torch.amp.GradScaler, "update", self._note_skipped)
        self.after(stand_ins, torch.amp.GradScaler, "update", self._note_scale)
        self.after(stand_ins, torch.amp.GradScaler, "scale", self._note_scaled)

    def schedule_step(self, original: Any, schedule: Any, *args: Any, **kwargs: Any) -> Any:
        if playing.on or self._in_schedule:
            return original(schedule, *args, **kwargs)
        self._in_schedule += 1
        initial = getattr(schedule, "_step_count", 1) == 0 or sys._getframe(2).f_code.co_name == "_initial_step"
        try:
            returned = original(schedule, *args, **kwargs)
        finally:
            self._in_schedule -= 1
        if not initial:
            self._note_schedule(schedule)
        return returned

    @safely
    def _note_schedule(self, schedule: Any) -> None:
        seen = self.program.schedules.setdefault(id(schedule), ScheduleSeen(schedule))
        seen.steps += 1
        seen.place = place_here()

    @safely
    def _note_clip(self, *_: Any) -> None:
        self.program.clips += 1

    @safely
    def _note_scaled(self, loss: Any, scaler: Any, *_: Any) -> None:
        if scaler.is_enabled() and isinstance(loss, Tensor):
            self._steps.scaled = id(loss), float(scaler.get_scale()) or 1.0
            self._steps.scaler = scaler
            self.program.scaled += 1

    @safely
    def _note_skipped(self, scaler: Any, *_: Any) -> None:
        """Count a skipped step. At a scale of 1 or less the overflow is the model's own."""
        states = scaler._per_optimizer_states.values()
        skipped = any(bool(each) for state in states for each in state["found_inf_per_device"].values())
        self.program.skipped += skipped
        if skipped and scaler.get_scale() <= 1.0:
            last = self.program.main_loss()
            self._steps.meet_bad(last.values[-1] if len(last) else math.nan, math.nan, None)

    @safely
    def _note_scale(self, _returned: Any, scaler: Any, *_: Any) -> None:
        scale = float(scaler.get_scale())
        before = self.program.scales.values[-1] if len(self.program.scales) else math.inf
        self.program.scales.add(self.program.steps, scale)
        if scale < before:
            self.notes.begin_step()  # no step was taken, but the next one begins


def _with_step(kind: type[Any]) -> list[type[Any]]:
    """The class and its subclasses that define ``step``."""
    found = [kind] if "step" in vars(kind) else []
    for below in kind.__subclasses__():
        found += _with_step(below)
    return list(dict.fromkeys(found))
