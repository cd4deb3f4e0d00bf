"""The validation batch (same preprocessing, different rows) and the metric, which must differ between models."""

import math
import re
from typing import Any

import torch
from torch import Tensor

from stayfinite.autopsy.steps.batch_parts import batch_items, batch_size
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import inputs_of
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.split_readings import in_words, prepared_differently

GROUP = "Validation"
ALIKE = "input scale of splits"
APART = "train/validation overlap"
FEWEST_ROWS = 4
FEWEST_VALUES = 64


def look_at_validation(bench: Bench, notes: Notes) -> None:
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


METRIC = "Metric"
DIFFERS = "metric"
CAUSES = ("metric-stuck", "metric-impossible")
OTHERS = 5  # number of other models: the same one with shuffled weights
SHARE = lazy_regex(r"acc|precision|recall|f1|auc|iou|dice", re.IGNORECASE)


def look_at_metric(bench: Bench, notes: Notes) -> None:
    """Record the metric of this model and of others."""
    metric = bench.metric
    if metric is None:
        notes.check(METRIC, DIFFERS, *CAUSES, skipped="no metric given")
        return
    batch = bench.batch if bench.validation_batch is None else bench.validation_batch
    name = getattr(metric, "__name__", type(metric).__name__)
    first = _value(metric, batch)
    if first is None:
        notes.check(METRIC, DIFFERS, *CAUSES, skipped=f"{name} does not return a number")
        return
    values = [first]
    generator = torch.Generator().manual_seed(0)
    for _ in range(OTHERS if bench.trainable else 0):
        try:
            _mix(bench, generator)
            values.append(_value(metric, batch) or 0.0)
        finally:
            bench.kept.put_back()
    finite = [value for value in values if math.isfinite(value)]
    if len(values) > 1 and (not finite or (len(set(finite)) == 1 and len(finite) == len(values))):
        notes.saw("metric.stuck", f"{name} is {first:.4g} for {len(values)} different models", name)
    if finite and (SHARE.search(name) and (max(finite) > 100.0 or min(finite) < -1.0)):
        notes.saw("metric.impossible", f"{name} is {max(finite, key=abs):.4g}; the maximum is 100 %", name)
    notes.check(METRIC, DIFFERS, *CAUSES, seen=f"{name} is {first:.4g}; for other models {_range(values[1:])}")


def _range(values: list[float]) -> str:
    return f"{min(values):.4g} to {max(values):.4g}" if values else "not requested"


def _mix(bench: Bench, generator: torch.Generator) -> None:
    """Turn it into another model of the same shape: shuffle each weight and draw random signs."""
    with torch.no_grad():
        for p in bench.trainable.values():
            flat = p.detach().reshape(-1)
            order = torch.randperm(flat.numel(), generator=generator).to(flat.device)
            sign = 1.0 if torch.rand((), generator=generator) < 0.5 else -1.0
            noise = 0.5 * torch.randn(flat.shape, generator=generator).to(flat) * flat.abs().mean().clamp_min(1e-2)
            p.copy_((sign * flat[order] + noise).reshape(p.shape))


def _value(metric: Any, batch: Any) -> float | None:
    with torch.no_grad():
        found = metric(batch)
    if isinstance(found, dict):
        found = next(iter(found.values()), None)
    if isinstance(found, Tensor) and found.numel() == 1:
        return float(found)
    return float(found) if isinstance(found, int | float) else None
