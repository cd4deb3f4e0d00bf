"""Compare the validation batch with the training batch: same preprocessing, different rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stayfinite.autopsy.steps.batch_parts import batch_items, batch_size
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import inputs_of
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.split_readings import in_words, prepared_differently

GROUP = "Validation"
ALIKE = "input scale of splits"
APART = "train/validation overlap"
FEWEST_ROWS = 4
FEWEST_VALUES = 64


def look(bench: Bench, notes: Notes) -> None:
    """Record how the two batches differ."""
    other = bench.validation_batch
    if other is None:
        notes.check(GROUP, ALIKE, "splits-scaled-differently", skipped="no validation batch given")
        return
    inputs = inputs_of(bench.batch, bench.first.seen.losses)
    pairs = {name: (item, batch_items(other).get(name)) for name, item in inputs.items()}
    _look_at_scale(pairs, notes)
    _look_at_rows(bench, other, pairs, notes)


def _look_at_scale(pairs: dict[str, tuple[Tensor, Tensor | None]], notes: Notes) -> None:
    compared = []
    for name, (mine, theirs) in pairs.items():
        if theirs is None:
            continue
        if mine.dtype != theirs.dtype:
            words = f"training inputs are {mine.dtype}, validation inputs {theirs.dtype}".replace("torch.", "")
            notes.saw("data.splits_scaled", words, name)
        if not (mine.is_floating_point() and theirs.is_floating_point()):
            continue
        if min(mine.numel(), theirs.numel()) < FEWEST_VALUES or mine.shape[1:] != theirs.shape[1:]:
            continue
        one, two = mine.detach().double(), theirs.detach().double()
        numbers = float(one.mean()), float(one.std()), float(two.mean()), float(two.std())
        compared.append(in_words(*numbers))
        if prepared_differently(*numbers):
            notes.saw("data.splits_scaled", in_words(*numbers), name)
    seen = compared[0] if compared else "no inputs of equal shape with enough numbers"
    notes.check(GROUP, ALIKE, "splits-scaled-differently", seen=seen)


def _look_at_rows(bench: Bench, other: Any, pairs: dict[str, tuple[Tensor, Tensor | None]], notes: Notes) -> None:
    size, others = batch_size(bench.batch), batch_size(other)
    alike = ((a, b) for a, b in pairs.values() if b is not None and a.dim() > 1 and a.shape[1:] == b.shape[1:])
    pair = next(alike, None)
    if pair is None or not size or not others or min(size, others) < FEWEST_ROWS:
        return
    known = {row.numpy().tobytes() for row in _plain(pair[0])}
    shared = sum(row.numpy().tobytes() in known for row in _plain(pair[1]))
    if shared:
        notes.saw("data.overlap_share", shared / others, "the validation batch")
    seen = f"{shared} of {others} validation rows are in the training batch"
    notes.check(GROUP, APART, "train-val-overlap", seen=seen)


def _plain(tensor: Tensor) -> Tensor:
    plain = tensor.detach().cpu()
    return plain.float() if plain.dtype is torch.bfloat16 else plain
