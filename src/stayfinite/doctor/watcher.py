"""Sees a program train: called by the seams, it records, and changes nothing of what they do.

What it does itself may fail; the program never notices. While statements are run again, nothing is recorded.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.doctor import looking
from stayfinite.doctor.frames import place_here, user_frames
from stayfinite.doctor.moments import Backward, Moment, moment
from stayfinite.doctor.ranks import world_size
from stayfinite.doctor.record import (
    BadStep,
    Course,
    LoaderSeen,
    LossSeen,
    ModelSeen,
    OptimizerSeen,
    Program,
    ScheduleSeen,
    fingerprint,
    tensors_in,
)
from stayfinite.doctor.replay import CannotReplay, LossReached, playing
from stayfinite.doctor.stopping import ProgramStopped
from stayfinite.inspection.bench.graph_walk import made_by
from stayfinite.inspection.bench.watch import _LOSSES, LossCall
from stayfinite.inspection.probes.loss_readings import gets_probabilities, gets_scores, normalised_over_rows, start_of
from stayfinite.state.rng_memory import RngMemory

MOST_TROUBLES = 8
MOST_PRINTS = 400
MOST_LABELS = 64
MOST_LOSSES = 1 << 20
"""Losses that a second run is compared with."""

TIME_FIRST = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
"""Modules that take time before the batch unless they are told otherwise."""

OnBad = Callable[["Watcher", BadStep, Backward, Any], None]


def _safely(default: Any = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A failure of ours is written down and is none of the program's."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def safe(self: Watcher, *args: Any, **kwargs: Any) -> Any:
            if self.busy or playing.on:
                return default
            self.busy = True
            try:
                with torch.no_grad():
                    return function(self, *args, **kwargs)
            except ProgramStopped:
                raise
            except Exception as error:
                if len(self.program.troubles) < MOST_TROUBLES:
                    self.program.troubles.append(f"{function.__name__}: {type(error).__name__}: {error}"[:300])
                return default
            finally:
                self.busy = False

        return safe

    return decorate


class Watcher:
    """Records what a program does.

    Arguments:
        on_bad: called once, at the first step that is not finite, while its weights are still those it began with.
        guard: refuse steps that are not finite.
        strict: end the program at the first.
    """

    def __init__(self, on_bad: OnBad | None = None, *, guard: bool = False, strict: bool = False) -> None:
        self.program = Program()
        self.busy = False
        self.backward_now: Backward | None = None
        """The last backward."""
        self.early: list[tuple[Backward, dict[int, Tensor], dict[int, bool]]] = []
        """The first backward, and the first after a step, each with the weights and modes it began with."""
        self.drawn: dict[int, Any] = {}
        self.good: dict[int, Tensor] = {}
        """Weights of an earlier step, by ``id`` of the parameter."""
        self._on_bad, self._guard, self._strict = on_bad, guard, strict
        self._rng = RngMemory()
        self._began: Moment | None = Moment([], self._rng.capture())
        self.buffers: dict[int, Tensor] = {}
        """Of the modules that were called in this step, as they were before, by ``id``."""
        self._came: Moment | None = None
        self._depth = 0
        self._in_backward = 0
        self._in_schedule = 0
        self._in_loss = 0
        self._before: dict[int, Tensor] | None = None
        self._reading: LoaderSeen | None = None
        self._loader_of: dict[int, LoaderSeen] = {}
        self._bad_loss: float | None = None
        """Of a backward that other ranks take part in."""
        self._scaled: tuple[int, float] = (0, 1.0)
        """``id`` of the last loss that a GradScaler has scaled, and its scale."""
        self.time_is_up = False

    def backward(self, original: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        """``Tensor.backward``."""
        return self._run_backward(original, loss, (loss, *args), kwargs)

    def autograd_backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.autograd.backward``."""
        tensors = args[0] if args else kwargs.get("tensors")
        loss = tensors if isinstance(tensors, Tensor) else (tensors[0] if tensors else None)
        return self._run_backward(original, loss, args, kwargs)

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

    @_safely()
    def _before_backward(self, loss: Tensor) -> None:
        self._depth = 0
        frames = user_frames(sys._getframe(2))
        value = loss.detach()
        batches = {key: each.last for key, each in self.program.loaders.items() if each.last is not None}
        self.backward_now = Backward(moment(frames), value, self._began, self._came, dict(self.drawn), batches)
        place = (frames[0].f_code.co_filename, frames[0].f_lineno) if frames else ("", 0)
        self.program.backwards += 1
        if self._reading is not None:
            self._reading.trained = True
        number = float(value) if value.numel() == 1 else math.nan
        if len(self.program.losses_in_order) < MOST_LOSSES:
            self.program.losses_in_order.append(number)
        for seen in self.program.optimizers.values():
            looking.before_backward(seen)
        if self.program.by_hand or (self.program.backwards == 1 and not self.program.optimizers):
            looking.note_hand_step(self.program, loss, place)
        if value.numel() == 1:
            if id(loss) == self._scaled[0]:
                number /= self._scaled[1]
            self.program.losses.setdefault(place, Course()).add(self.program.steps, number)
            self._note_turned(number)
            if not math.isfinite(number) and world_size() > 1:
                self._bad_loss = number  # DDP awaits this backward: nothing may be run again before it
            elif not math.isfinite(number):
                self._meet_bad(number, math.nan, None)
        if len(self.early) < 2 and self.program.bad is None and self.program.steps >= len(self.early):
            self._keep_early()

    def _keep_early(self) -> None:
        """Write down the first step and the one after it, for the examination at the end."""
        assert self.backward_now is not None
        program = self.program
        weights = looking.weights_of(program, looking.SMALL_MODEL if self.early else looking.LARGE)
        program.first_weights = weights | program.first_weights
        modes = {id(m): m.training for model in program.models.values() for m in model.module.modules()}
        self.early.append((self.backward_now, weights, modes))

    @_safely()
    def _after_backward(self) -> None:
        for seen in self.program.optimizers.values():
            looking.after_backward(seen)
        if self._bad_loss is not None:
            number, self._bad_loss = self._bad_loss, None
            self._meet_bad(number, math.nan, None)
        if self.program.by_hand:
            self._between()
            self.program.steps += 1

    def _note_turned(self, loss: float) -> None:
        for seen in self.program.loss_calls.values():
            if seen.learns and seen.value > 0 and math.isclose(loss, -seen.value, rel_tol=1e-5):
                seen.turned += 1

    @_safely()
    def build_optimizer_seen(self, optimizer: Any) -> None:
        if id(optimizer) not in self.program.optimizers:
            self.program.optimizers[id(optimizer)] = OptimizerSeen(optimizer, place_here())
            frames = user_frames(sys._getframe(2))
            if self._began is None or self.program.steps == 0:
                self._began, self._came = moment(frames, self._rng.capture()), None

    def build_optimizer(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``Optimizer.__init__``."""
        returned = original(optimizer, *args, **kwargs)
        self.build_optimizer_seen(optimizer)
        return returned

    def before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """An optimizer is about to step."""
        if playing.on:
            raise CannotReplay("an optimizer would take a step")
        if self.time_is_up and not self.busy:
            raise ProgramStopped("time")
        self._before_step(optimizer)

    @_safely()
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
        if self.program.bad is None:
            looking.before_step(seen, norm, self.program.backwards, has_gradients=bool(gradients))
        if looking.is_due(seen.steps):
            self._before = looking.note_gradients(seen)
        if not math.isfinite(norm) and gradients:
            last = self.program.main_loss()
            self._meet_bad(last.values[-1] if len(last) else math.nan, norm, optimizer)
            if self._guard:
                looking.refuse(optimizer)
                self.program.refused += 1

    def after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """An optimizer has stepped."""
        self._after_step(optimizer)

    @_safely()
    def _after_step(self, optimizer: Any) -> None:
        seen = self._seen(optimizer)
        seen.steps += 1
        self.program.steps += 1
        looking.after_step(seen)
        if self._before is not None:
            looking.note_movement(seen, self._before)
            self._before = None
        if self.program.bad is None and looking.is_due(seen.steps):
            self.good = looking.weights_of(self.program)
        self._between()

    def _between(self) -> None:
        """A step has ended, and the next begins."""
        self._began, self._came = moment(user_frames(sys._getframe(3)), self._rng.capture()), None
        self.buffers = {}

    def _seen(self, optimizer: Any) -> OptimizerSeen:
        if id(optimizer) not in self.program.optimizers:
            self.program.optimizers[id(optimizer)] = OptimizerSeen(optimizer, ("", 0))
        return self.program.optimizers[id(optimizer)]

    def _meet_bad(self, loss: float, norm: float, optimizer: Any) -> None:
        if self.program.bad is None and self.backward_now is not None:
            held = self.backward_now.at.frames
            place = (held[0].code.co_filename, held[0].line) if held else ("", 0)
            taken = sum(each.steps for each in self.program.optimizers.values())
            self.program.bad = BadStep(self.program.steps, loss, norm, place, self.program.backwards, taken)
            if self._on_bad is not None:
                self._on_bad(self, self.program.bad, self.backward_now, optimizer)
            if self._strict:
                raise ProgramStopped("strict")

    def zero_grad(self, original: Any, owner: Any, *args: Any, **kwargs: Any) -> Any:
        """``Optimizer.zero_grad`` and ``Module.zero_grad``."""
        self._zero_grad(owner)
        return original(owner, *args, **kwargs)

    @_safely()
    def _zero_grad(self, owner: Any) -> None:
        place = place_here()
        for seen in self.program.optimizers.values():
            looking.on_clear(seen, owner, place)

    def load_state_dict(self, original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """``Module.load_state_dict``."""
        returned = original(module, *args, **kwargs)
        self.program.loaded.update(id(each) for each in module.modules())
        return returned

    def schedule_step(self, original: Any, schedule: Any, *args: Any, **kwargs: Any) -> Any:
        """``LRScheduler.step``."""
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

    @_safely()
    def _note_schedule(self, schedule: Any) -> None:
        seen = self.program.schedules.setdefault(id(schedule), ScheduleSeen(schedule))
        seen.steps += 1
        seen.place = place_here()
        if len(seen.steps_at) < 512:
            seen.steps_at.append(self.program.steps)

    def clip(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``clip_grad_norm_``."""
        if not playing.on:
            self.program.clips += 1
            self.program.clip_place = place_here()
        return original(*args, **kwargs)

    def update_scale(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        """``GradScaler.update``."""
        self._note_skipped(scaler)
        returned = original(scaler, *args, **kwargs)
        self._note_scale(scaler)
        return returned

    def scale_loss(self, original: Any, scaler: Any, outputs: Any) -> Any:
        """``GradScaler.scale``."""
        returned = original(scaler, outputs)
        if scaler.is_enabled() and isinstance(returned, Tensor) and not playing.on:
            self._scaled = id(returned), float(scaler.get_scale()) or 1.0
            self.program.scaled += 1
        return returned

    @_safely()
    def _note_skipped(self, scaler: Any) -> None:
        """A step was skipped: while the scale is large that is how it settles, at 1 the overflow is the model's own."""
        states = scaler._per_optimizer_states.values()
        skipped = any(bool(each) for state in states for each in state["found_inf_per_device"].values())
        self.program.skipped += skipped
        if skipped and scaler.get_scale() <= 1.0:
            last = self.program.main_loss()
            self._meet_bad(last.values[-1] if len(last) else math.nan, math.nan, None)

    @_safely()
    def _note_scale(self, scaler: Any) -> None:
        scale = float(scaler.get_scale())
        before = self.program.scales.values[-1] if len(self.program.scales) else math.inf
        self.program.scales.add(self.program.steps, scale)
        if scale < before:
            self._between()  # no step was taken, and the next one begins all the same

    def begin_epoch(self, original: Any, loader: Any) -> Any:
        """``DataLoader.__iter__``."""
        iterator = original(loader)
        self._begin_epoch(loader, iterator)
        return iterator

    @_safely()
    def _begin_epoch(self, loader: Any, iterator: Any) -> None:
        seen = self.program.loaders.setdefault(id(loader), LoaderSeen(loader))
        seen.epochs += 1
        seen.in_epoch = 0
        self._loader_of[id(iterator)] = seen

    def next_batch(self, original: Any, iterator: Any) -> Any:
        """The ``__next__`` of a DataLoader's iterator."""
        if playing.drawn is not None and playing.on and id(iterator) in playing.drawn:
            return playing.drawn[id(iterator)]
        batch = original(iterator)
        self._note_batch(iterator, batch)
        return batch

    @_safely()
    def _note_batch(self, iterator: Any, batch: Any) -> None:
        seen = self._loader_of.get(id(iterator))
        self.drawn[id(iterator)] = batch
        if len(self.drawn) > 4:
            self.drawn.pop(next(iter(self.drawn)))
        if seen is None:
            return
        self._reading = seen
        seen.batches += 1
        seen.in_epoch += 1
        seen.longest = max(seen.longest, seen.in_epoch)
        seen.last = batch
        if len(seen.prints) < MOST_PRINTS:
            seen.prints.append(tuple(fingerprint(t) for t in tensors_in(batch)[:2]))
        self._came = moment(user_frames(sys._getframe(3)), self._rng.capture())

    def before_call(self, module: nn.Module, args: Any) -> None:
        """A module is called."""
        self._depth += 1
        if isinstance(module, TIME_FIRST) and id(module) not in self.program.sequences and not playing.on:
            self._note_sequence(module, args)
        if self._depth == 1 and not playing.on and not self.busy:
            self._note_call(module, args, torch.is_grad_enabled())

    @_safely()
    def _note_sequence(self, module: Any, args: Any) -> None:
        first = args[0] if args else None
        inner = getattr(module, "self_attn", module)
        if isinstance(first, Tensor) and first.dim() == 3 and not getattr(inner, "batch_first", True):
            self.program.sequences[id(module)] = type(module).__name__, tuple(first.shape), place_here()

    def after_call(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        """A module has returned."""
        self._depth = max(0, self._depth - 1)

    @_safely()
    def _note_call(self, module: nn.Module, args: Any, graph: bool) -> None:
        if module.__class__.__module__.startswith("torch.nn.modules.loss"):
            return
        seen = self.program.models.get(id(module))
        if seen is None:
            if len(self.program.models) > 64:
                return
            seen = self.program.models[id(module)] = ModelSeen(module)
        if graph and self.program.bad is None:
            looking.keep_buffers(module, self.buffers)
        reading = self._reading
        other = reading is not None and not reading.trained and any(o.trained for o in self.program.loaders.values())
        looking.note_call(seen, args, graph=graph, other_loader=other)

    def loss_function(self, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A loss of ``torch.nn.functional``."""
        if playing.on or self.busy or self._in_loss:
            return original(*args, **kwargs)
        self._in_loss += 1
        try:
            value = original(*args, **kwargs)
        finally:
            self._in_loss -= 1
        graph = torch.is_grad_enabled()
        self._note_loss(name, args, kwargs, value, graph)
        return value

    @_safely()
    def _note_loss(self, name: str, args: Any, kwargs: Any, value: Any, graph: bool) -> None:
        given = dict(zip(_LOSSES[name], args, strict=False)) | kwargs
        scores, target = given.get("input"), given.get("target")
        if not isinstance(scores, Tensor) or not isinstance(target, Tensor):
            return
        place = place_here()
        learns = graph and scores.requires_grad
        if not graph:
            looking.note_comparison(self.program)
        seen = self.program.loss_calls.setdefault((name, place, learns), LossSeen(name, place, learns))
        seen.calls += 1
        if isinstance(value, Tensor) and value.numel() == 1 and not value.is_cuda:
            seen.value = float(value.detach())
        if len(seen.labels) < MOST_LABELS and name in ("cross_entropy", "nll_loss") and not target.is_floating_point():
            seen.labels.append(target.detach().reshape(-1)[:512].clone())
        if not looking.is_due(seen.calls - 1) or self.program.bad is not None:
            return
        settings = {key: each for key, each in given.items() if key not in ("input", "target")}
        seen.reduction = str(settings.get("reduction", "mean"))
        seen.rows = int(target.shape[0]) if target.dim() else 0
        seen.classes = int(scores.shape[1]) if scores.dim() > 1 else 0
        seen.ids += looking.are_the_ids(self.program, target)
        seen.over_batch += looking.adds_up_over_rows(name, scores)
        call = LossCall(
            name, scores.detach(), made_by(scores), learns, target.detach(), settings,
            value.detach() if isinstance(value, Tensor) else None, "",
        )  # fmt: skip
        seen.looked += 1
        seen.probabilities += gets_probabilities(call)
        seen.scores += gets_scores(call)
        seen.over_rows += normalised_over_rows(call)
        if seen.start is None and (begin := start_of(call)) is not None:
            seen.start, seen.expected = begin[0], begin[1]
        if looking.crossed(scores, target) or looking.grows(scores, target):
            seen.broadcast = list(scores.shape), list(target.shape)

    def pair(self, name: str, original: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
        """A comparison or a difference of two tensors."""
        if args and isinstance(args[0], Tensor) and not (playing.on or self.busy):
            if first.dim() != args[0].dim():
                self._note_pair(name, first, args[0])
            if "eq" in name and first.dim() and not torch.is_grad_enabled():
                looking.note_comparison(self.program)
        return original(first, *args, **kwargs)

    @_safely()
    def _note_pair(self, name: str, first: Tensor, second: Tensor) -> None:
        if looking.crossed(first, second):
            place = place_here()
            if place[0] and len(self.program.crossed) < 32:
                kind = "difference" if "sub" in name else "comparison"
                self.program.crossed.setdefault(place, (kind, list(first.shape), list(second.shape)))
