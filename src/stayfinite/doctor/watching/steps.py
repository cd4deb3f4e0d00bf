"""Record steps: backward, gradients, optimizers. Changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from stayfinite.doctor.frames import place_here, user_frames
from stayfinite.doctor.moments import Backward, Early, meet_backward, moment, names_in
from stayfinite.doctor.ranks import world_size
from stayfinite.doctor.record import BadStep, Course, OptimizerSeen
from stayfinite.doctor.replay import CannotReplay, LossReached, playing
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.stopping import ProgramStopped
from stayfinite.doctor.watching import looking
from stayfinite.doctor.watching.notes import Notes, Watching, safely

MOST_LOSSES = 1 << 20
"""Losses kept for comparison with a second run."""

OnBad = Callable[["StepWatcher", BadStep, Backward, Any], None]


class StepWatcher(Watching):
    """Records the steps of a program.

    Arguments:
        on_bad: called once, at the first non-finite step, before its weights change.
        guard: refuse non-finite steps.
        strict: end the program at the first one.
    """

    def __init__(self, notes: Notes, on_bad: OnBad | None = None, *, guard: bool = False, strict: bool = False) -> None:
        super().__init__(notes)
        self.backward_now: Backward | None = None
        """The last backward."""
        self.early: list[Early] = []
        """The first backward, and the first after a step, each with the weights and modes before it."""
        self.good: dict[int, Tensor] = {}
        """Weights of an earlier step, by ``id`` of the parameter."""
        self.scaled: tuple[int, float] = (0, 1.0)
        """``id`` of the last loss scaled by a GradScaler, and the scale."""
        self.scaler: Any = None
        """That GradScaler."""
        self.time_is_up = False
        self._on_bad, self._guard, self._strict = on_bad, guard, strict
        self._in_backward = 0
        self._bad_loss: float | None = None
        """A non-finite loss whose handling waits for a multi-rank backward."""

    def attach(self, stand_ins: StandIns) -> None:
        stand_ins.keep(register_optimizer_step_pre_hook(self.before_step).remove)
        stand_ins.keep(register_optimizer_step_post_hook(self._after_step).remove)
        meet_backward(stand_ins, self._run_backward)
        self.after(stand_ins, Optimizer, "__init__", self._note_optimizer)
        for owner in (Optimizer, torch.nn.Module):
            self.before(stand_ins, owner, "zero_grad", self._zero_grad)

    def end_at_next_step(self) -> None:
        """Stop the program at its next step, in case it catches what is raised before."""
        self.time_is_up = True

    def _run_backward(self, original: Any, loss: Any, args: Any, kwargs: Any) -> Any:
        if self._in_backward or not isinstance(loss, Tensor):
            return original(*args, **kwargs)
        if playing.on:
            if playing.place == place_here():
                raise LossReached(loss)
            return None
        self._before_backward(loss)
        self._in_backward += 1
        try:
            returned = original(*args, **kwargs)
        finally:
            self._in_backward -= 1
        self._after_backward()
        return returned

    @safely
    def _before_backward(self, loss: Tensor) -> None:
        self.notes.depth = 0
        frames = user_frames()
        value = loss.detach()
        batches = {key: each.last for key, each in self.program.loaders.items() if each.last is not None}
        began, came, drawn = self.notes.began, self.notes.came, dict(self.notes.drawn)
        self.backward_now = Backward(moment(frames), value, began, came, drawn, batches)
        self.backward_now.graph = loss.grad_fn
        if self.scaler is not None:
            self.backward_now.scaler = self.scaler, self.scaled[1]
        place = (frames[0].f_code.co_filename, frames[0].f_lineno) if frames else ("", 0)
        self.program.backwards += 1
        if self.notes.reading is not None:
            self.notes.reading.trained = True
        number = float(value) if value.numel() == 1 else math.nan
        if len(self.program.losses_in_order) < MOST_LOSSES:
            self.program.losses_in_order.append(number)
        for seen in self.program.optimizers.values():
            looking.before_backward(seen)
        if self.program.by_hand or (self.program.backwards == 1 and not self.program.optimizers):
            looking.note_hand_step(self.program, loss, place)
        if value.numel() == 1:
            if id(loss) == self.scaled[0]:
                number /= self.scaled[1]
            self.program.losses.setdefault(place, Course()).add(self.program.steps, number)
            self._note_turned(number)
            if not math.isfinite(number) and world_size() > 1:
                self._bad_loss = number  # DDP waits for this backward: re-run nothing before it
            elif not math.isfinite(number):
                self.meet_bad(number, math.nan, None)
        if len(self.early) < 2 and self.program.bad is None and self.program.steps >= len(self.early):
            self._keep_early()

    def _keep_early(self) -> None:
        """Save the first two steps for the examination at the end."""
        assert self.backward_now is not None
        program = self.program
        weights = looking.weights_of(program, looking.SMALL_MODEL if self.early else looking.LARGE)
        program.first_weights = weights | program.first_weights
        program.names |= names_in(self.backward_now)
        modes = {id(m): m.training for model in program.models.values() for m in model.module.modules()}
        self.early.append(Early(self.backward_now, weights, modes))

    @safely
    def _after_backward(self) -> None:
        if self.backward_now is not None:
            self.backward_now.graph = None
        for seen in self.program.optimizers.values():
            looking.after_backward(seen)
        if self._bad_loss is not None:
            number, self._bad_loss = self._bad_loss, None
            self.meet_bad(number, math.nan, None)
        if self.program.by_hand:
            self.notes.begin_step()
            self.program.steps += 1

    def _note_turned(self, loss: float) -> None:
        for seen in self.program.loss_calls.values():
            if seen.learns and seen.value > 0 and math.isclose(loss, -seen.value, rel_tol=1e-5):
                seen.turned += 1

    @safely
    def _note_optimizer(self, _returned: Any, optimizer: Any, *_: Any) -> None:
        if id(optimizer) not in self.program.optimizers:
            self.program.optimizers[id(optimizer)] = OptimizerSeen(optimizer, place_here())
            if self.notes.began is None or self.program.steps == 0:
                self.notes.begin_step()

    def before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if playing.on:
            raise CannotReplay("an optimizer would take a step")
        if self.time_is_up and not self.notes.busy:
            raise ProgramStopped("time")
        self._before_step(optimizer)

    @safely
    def _before_step(self, optimizer: Any) -> None:
        seen = self._seen(optimizer)
        gradients = looking.gradients_of(optimizer)
        norm = looking.norm_of(gradients)
        seen.norms.add(self.program.steps, norm)
        rate = next((float(group["lr"]) for group in optimizer.param_groups if "lr" in group), math.nan)
        if not seen.steps:
            seen.first_rate = float(next(g.get("initial_lr", g.get("lr", math.nan)) for g in optimizer.param_groups))
        seen.rates.add(self.program.steps, rate)
        seen.step_place = place_here()
        if self.backward_now is not None and self.backward_now.at.frames:
            held = self.backward_now.at.frames[0]
            seen.backward_place = held.code.co_filename, held.line
        if self.program.bad is None:
            looking.before_step(seen, norm, self.program.backwards, has_gradients=bool(gradients))
        if not math.isfinite(norm) and gradients:
            last = self.program.main_loss()
            self.meet_bad(last.values[-1] if len(last) else math.nan, norm, optimizer)
            if self._guard:
                looking.refuse(optimizer)
                self.program.refused += 1
        elif looking.is_due(seen.steps):
            self._look(seen)

    def _look(self, seen: OptimizerSeen) -> None:
        """Look closely at a step: its gradients, and a copy of the weights before it."""
        looking.note_gradients(seen)
        if self.program.bad is None:
            self.good = {}  # free the old copy first
            self.good = looking.weights_of(self.program)

    @safely
    def _after_step(self, optimizer: Any, *_: Any) -> None:
        seen = self._seen(optimizer)
        seen.steps += 1
        self.program.steps += 1
        if self.early and self.early[-1].optimizer is None:
            self.early[-1].optimizer = optimizer
        looking.after_step(seen)
        self.notes.begin_step()

    def _seen(self, optimizer: Any) -> OptimizerSeen:
        return self.program.optimizers.setdefault(id(optimizer), OptimizerSeen(optimizer, ("", 0)))

    def meet_bad(self, loss: float, norm: float, optimizer: Any) -> None:
        """Record the first non-finite step."""
        if self.program.bad is None and self.backward_now is not None:
            held = self.backward_now.at.frames
            place = (held[0].code.co_filename, held[0].line) if held else ("", 0)
            taken = sum(each.steps for each in self.program.optimizers.values())
            self.program.bad = BadStep(self.program.steps, loss, norm, place, self.program.backwards, taken)
            if self._on_bad is not None:
                self._on_bad(self, self.program.bad, self.backward_now, optimizer)
            if self._strict:
                raise ProgramStopped("strict")

    @safely
    def _zero_grad(self, owner: Any, *_: Any) -> None:
        place = place_here()
        for seen in self.program.optimizers.values():
            looking.on_clear(seen, owner, place)
