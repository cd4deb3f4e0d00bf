"""The expected learning rate during a run, from the schedule and length in the settings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from stayfinite.core.series import RunSeries
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import first_number

KIND = ("lr_scheduler_type", "lr_scheduler", "scheduler", "lr_schedule", "lr_decay_style", "decay_method", "schedule",
        "scheduler_type", "sched", "lr_policy")  # fmt: skip
EPOCHS = ("num_train_epochs", "max_epochs", "epochs", "num_epochs", "n_epochs", "train_epochs", "max_epoch")
STEPS = ("max_steps", "max_train_steps", "total_steps", "num_training_steps", "train_iters", "max_update", "max_iters",
         "train_steps", "total_num_steps", "num_iterations", "max_iterations")  # fmt: skip
OTHER_SHAPE = (
    r"min_lr|lr_end|final_lr|end_lr|restart|cycl|constant|\bwsd\b|plateau|stable|lr_min|eta_min|\bT_max\b|\bT_0\b|"
    r"decay[_-](?:steps|iters|epochs)|\bhold\b|\bnoam\b|LinearLR|start_factor|sched_power"
)
"""Schedules that do not decay to 0 at once, or whose length differs from the run's."""

_SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda share: 0.5 * (1.0 + math.cos(math.pi * share)),
    "linear": lambda share: 1.0 - share,
    "polynomial": lambda share: 1.0 - share,
}


@dataclass(frozen=True, slots=True)
class Departure:
    """A point where the logged rate is far from the planned one."""

    logged: float
    planned: float
    share: float
    """Share of the run completed, 0 to 1."""
    kind: str
    """The requested schedule."""
    where: str


def departure(facts: Facts) -> Departure | None:
    """The largest deviation from a declared cosine or linear decay; None if they agree."""
    setting = facts.settings.find(*KIND)
    shape = None if setting is None else re.search(r"cosine|linear|polynomial", str(setting.value), re.IGNORECASE)
    peak = facts.context.lr
    if setting is None or shape is None or peak is None or float(peak.value) <= 0:
        return None
    if facts.settings.search(OTHER_SHAPE) is not None:
        return None
    planned = _SHAPES[shape.group().lower()]
    rate, warm = float(peak.value), _warmup(facts)
    widest: Departure | None = None
    for run in facts.runs:
        highest = 0.0
        for (least, most), logged, line in _progress(facts, run):
            highest = max(highest, logged)
            if least <= warm + 0.02:
                continue
            upper, lower = (rate * planned(min(1.0, (share - warm) / (1.0 - warm))) for share in (least, most))
            too_high = logged > 1.5 * upper and logged - upper > 0.25 * rate
            too_low = logged < 0.4 * lower and lower - logged > 0.25 * rate and highest > 2 * logged
            target = upper if too_high else lower
            if (too_high or too_low) and (widest is None or abs(logged - target) > abs(widest.logged - widest.planned)):
                widest = Departure(logged, target, most, f"{setting.name}: {setting.value}", run.where(line))
    return widest


def _warmup(facts: Facts) -> float:
    """Warmup as a share of the run; a tenth if given in steps and the length is unknown."""
    warmup = facts.context.warmup
    if warmup is None or float(warmup.value) <= 0:
        return 0.0
    if float(warmup.value) < 1:
        return min(0.5, float(warmup.value))
    total = first_number(facts.settings, *STEPS)
    if total is not None and float(total.value) > float(warmup.value):
        return min(0.5, float(warmup.value) / float(total.value))
    return 0.1


def _progress(facts: Facts, run: RunSeries) -> list[tuple[tuple[float, float], float, int]]:
    """``((least, most) share of the run completed, rate, line)`` where both are known."""
    steps, epochs = first_number(facts.settings, *STEPS), first_number(facts.settings, *EPOCHS)
    limit = float(steps.value) if steps is not None and float(steps.value) > 1 else None
    length = float(epochs.value) if epochs is not None and limit is None and float(epochs.value) > 0 else None
    whole = all(point.epoch is None or point.epoch == int(point.epoch) for point in run.points if _finite(point.epoch))
    rows = []
    for point in run.points:
        if point.lr is None or not math.isfinite(point.lr):
            continue
        if length is not None and point.epoch is not None and math.isfinite(point.epoch):
            # An integer is the current or the completed epoch.
            share = (point.epoch - (1.0 if whole else 0.0)) / length, point.epoch / length
        elif limit is not None and point.step is not None and math.isfinite(point.step):
            share = point.step / limit, point.step / limit
        else:
            continue
        if share[0] >= 0 and share[1] <= 1.0:
            rows.append((share, point.lr, point.line))
    return rows


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
