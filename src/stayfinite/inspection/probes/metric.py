"""The metric must differ between models."""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import Tensor

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes

GROUP = "Metric"
TITLE = "metric"
CAUSES = ("metric-stuck", "metric-impossible")
OTHERS = 5  # number of other models: the same one with shuffled weights
SHARE = lazy_regex(r"acc|precision|recall|f1|auc|iou|dice", re.IGNORECASE)


def look(bench: Bench, notes: Notes) -> None:
    """Record the metric of this model and of others."""
    metric = bench.metric
    if metric is None:
        notes.check(GROUP, TITLE, *CAUSES, skipped="no metric given")
        return
    batch = bench.batch if bench.validation_batch is None else bench.validation_batch
    name = getattr(metric, "__name__", type(metric).__name__)
    first = _value(metric, batch)
    if first is None:
        notes.check(GROUP, TITLE, *CAUSES, skipped=f"{name} does not return a number")
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
    notes.check(GROUP, TITLE, *CAUSES, seen=f"{name} is {first:.4g}; for other models {_range(values[1:])}")


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
