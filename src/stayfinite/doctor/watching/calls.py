"""Record model calls: inputs and mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.doctor.frames import place_here
from stayfinite.doctor.record import ModelSeen, tensors_in
from stayfinite.doctor.replay import playing
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching import looking
from stayfinite.doctor.watching.notes import Watching, safely

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
