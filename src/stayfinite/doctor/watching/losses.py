"""Record loss calls and tensor comparisons."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from stayfinite.doctor.frames import place_here
from stayfinite.doctor.record import LossSeen
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching import looking
from stayfinite.doctor.watching.notes import Notes, Watching, safely
from stayfinite.inspection.bench.graph_walk import made_by
from stayfinite.inspection.bench.watch import LOSSES, LossCall, crossed, grows
from stayfinite.inspection.probes.loss_readings import gets_probabilities, gets_scores, normalised_over_rows, start_of

COMPARISONS = ("__eq__", "eq", "__sub__", "sub")
MOST_LABELS = 64
MOST_PAIRS = 32


class LossWatcher(Watching):
    """Records inputs of loss functions, and comparisons."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._in_loss = 0

    def attach(self, stand_ins: StandIns) -> None:
        for name in LOSSES:
            stand_ins.put(F, name, functools.partial(self.loss_function, name))
        for name in COMPARISONS:
            stand_ins.set(Tensor, name, self._beside(name, getattr(Tensor, name)))

    def loss_function(self, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.aside or self._in_loss:
            return original(*args, **kwargs)
        self._in_loss += 1
        try:
            value = original(*args, **kwargs)
        finally:
            self._in_loss -= 1
        graph = torch.is_grad_enabled()
        self._note_loss(name, args, kwargs, value, graph)
        return value

    @safely
    def _note_loss(self, name: str, args: Any, kwargs: Any, value: Any, graph: bool) -> None:
        given = dict(zip(LOSSES[name], args, strict=False)) | kwargs
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
        if learns and self.notes.given is not None and self.program.bad is None:
            looking.note_pairs(seen, self.notes.given, target)
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
        if crossed(scores, target) or grows(scores, target):
            seen.broadcast = list(scores.shape), list(target.shape)

    def _beside(self, name: str, original: Any) -> Any:
        """Wrap a comparison or difference; inspects only calls of odd shapes or in evaluation."""
        compares = "eq" in name

        @functools.wraps(original)
        def pair(first: Any, *args: Any, **kwargs: Any) -> Any:
            second = args[0] if args else None
            if isinstance(second, Tensor) and (compares or first.dim() != second.dim()) and not self.aside:
                if first.dim() != second.dim():
                    self._note_pair(name, first, second)
                if compares and first.dim() and not torch.is_grad_enabled():
                    looking.note_comparison(self.program)
            return original(first, *args, **kwargs)

        return pair

    @safely
    def _note_pair(self, name: str, first: Tensor, second: Tensor) -> None:
        if crossed(first, second):
            place = place_here()
            if place[0] and len(self.program.crossed) < MOST_PAIRS:
                kind = "difference" if "sub" in name else "comparison"
                self.program.crossed.setdefault(place, (kind, list(first.shape), list(second.shape)))
