"""Watch a program train through torch hooks."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stayfinite.doctor.frames import place_here
from stayfinite.doctor.record import LoaderSeen, ModelSeen, Program, ScheduleSeen, fingerprint, tensors_in
from stayfinite.doctor.replay import playing
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching import looking
from stayfinite.doctor.watching.losses import LossWatcher
from stayfinite.doctor.watching.notes import Notes, Watching, safely
from stayfinite.doctor.watching.steps import OnBad, StepWatcher


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


MOST_MODELS = 64
FEWEST_ROWS = 4
TIME_FIRST = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
"""Modules that are time-first by default."""


class CallWatcher(Watching):
    """Records modules the program calls directly, not through another."""

    def attach(self, stand_ins: StandIns) -> None:
        stand_ins.keep(torch.nn.modules.module.register_module_forward_pre_hook(self.before_call).remove)
        stand_ins.keep(torch.nn.modules.module.register_module_forward_hook(self.after_call).remove)
        self.after(stand_ins, torch.nn.Module, "load_state_dict", self._note_loaded)

    @safely
    def _note_loaded(self, _returned: Any, module: nn.Module, *_: Any) -> None:
        if not self.program.steps:
            self.program.loaded.update(id(each) for each in module.modules())

    def before_call(self, module: nn.Module, args: Any) -> None:
        self.notes.depth += 1
        if isinstance(module, TIME_FIRST) and id(module) not in self.program.sequences and not playing.on:
            self._note_sequence(module, args)
        if self.notes.depth == 1 and not self.aside:
            self._note_call(module, args, torch.is_grad_enabled())

    def after_call(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.notes.depth == 1 and not self.aside and torch.is_grad_enabled():
            seen = self.program.models.get(id(module))
            if seen is not None and looking.is_due(seen.calls_training):
                self._note_answer(seen, args, output)
        self.notes.depth = max(0, self.notes.depth - 1)

    @safely
    def _note_answer(self, seen: ModelSeen, args: Any, output: Any) -> None:
        answers = [each for each in tensors_in(output) if each.is_floating_point() and each.dim() > 1]
        given = [each for each in tensors_in(args) if each.dim() > 1]
        if answers and given and len(answers[0]) >= FEWEST_ROWS and len(given[0]) == len(answers[0]):
            seen.same_answers.append(looking.rows_alike(answers[0]) and not looking.rows_alike(given[0]))

    @safely
    def _note_sequence(self, module: Any, args: Any) -> None:
        first = args[0] if args else None
        inner = getattr(module, "self_attn", module)
        if isinstance(first, Tensor) and first.dim() == 3 and not getattr(inner, "batch_first", True):
            self.program.sequences[id(module)] = type(module).__name__, tuple(first.shape), place_here()

    @safely
    def _note_call(self, module: nn.Module, args: Any, graph: bool) -> None:
        if module.__class__.__module__.startswith("torch.nn.modules.loss"):
            return
        seen = self.program.models.get(id(module))
        if seen is None:
            if len(self.program.models) > MOST_MODELS:
                return
            seen = self.program.models[id(module)] = ModelSeen(module)
        if graph and self.program.bad is None:
            looking.keep_buffers(module, self.notes.buffers)
            data = [t for t in tensors_in(args) if t.dim() > 1 and not t.requires_grad]
            self.notes.given = data[0] if data else self.notes.given
        reading = self.notes.reading
        other = reading is not None and not reading.trained and any(o.trained for o in self.program.loaders.values())
        looking.note_call(seen, args, graph=graph, other_loader=other)


MOST_PRINTS = 400
MOST_DRAWN = 4


class BatchWatcher(Watching):
    """Records loaders and their batches."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._loader_of: dict[int, LoaderSeen] = {}

    def attach(self, stand_ins: StandIns) -> None:
        self.after(stand_ins, DataLoader, "__iter__", self._begin_epoch)
        stand_ins.put(_BaseDataLoaderIter, "__next__", self.next_batch)

    @safely
    def _begin_epoch(self, iterator: Any, loader: Any) -> None:
        seen = self.program.loaders.setdefault(id(loader), LoaderSeen(loader))
        seen.epochs += 1
        seen.in_epoch = 0
        self._loader_of[id(iterator)] = seen

    def next_batch(self, original: Any, iterator: Any) -> Any:
        if playing.drawn is not None and playing.on and id(iterator) in playing.drawn:
            return playing.drawn[id(iterator)]
        batch = original(iterator)
        self._note_batch(iterator, batch)
        return batch

    @safely
    def _note_batch(self, iterator: Any, batch: Any) -> None:
        seen = self._loader_of.get(id(iterator))
        self.notes.drawn[id(iterator)] = batch
        if len(self.notes.drawn) > MOST_DRAWN:
            self.notes.drawn.pop(next(iter(self.notes.drawn)))
        if seen is None:
            return
        self.notes.reading = seen
        seen.batches += 1
        seen.in_epoch += 1
        seen.last = batch
        if len(seen.prints) < MOST_PRINTS:
            seen.prints.append(tuple(fingerprint(t) for t in tensors_in(batch)[:2]))
        self.notes.take_batch()


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
