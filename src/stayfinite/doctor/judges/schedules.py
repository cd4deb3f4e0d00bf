"""Learning-rate schedules: stepped in the wrong unit, finished early, or never started."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stayfinite.doctor.record import Program, ScheduleSeen
from stayfinite.doctor.told import Told, told

FEWEST_STEPS = 12
DECAYS = (
    "StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "LinearLR", "PolynomialLR", "LambdaLR",
    "MultiplicativeLR",
)  # fmt: skip

WARMING = ("LambdaLR", "LinearLR", "SequentialLR", "ChainedScheduler")
"""Schedules that may begin with a warm-up."""


def judge(program: Program) -> Iterator[Told]:
    """Schedules that finish early, oscillate or hardly move."""
    for seen in program.schedules.values():
        found = _judge_one(program, seen)
        if found is not None:
            yield found


def _judge_one(program: Program, seen: ScheduleSeen) -> Told | None:
    schedule = seen.schedule
    optimizer = program.optimizers.get(id(getattr(schedule, "optimizer", None)))
    if optimizer is None or optimizer.steps < FEWEST_STEPS:
        return None
    rates = [rate for rate in optimizer.rates.values if math.isfinite(rate)]
    name = type(schedule).__name__
    each_batch = seen.steps >= 0.8 * optimizer.steps
    top = max(max(rates, default=0.0), optimizer.first_rate if math.isfinite(optimizer.first_rate) else 0.0)
    if top <= 0:
        return None
    epochs = max((each.epochs for each in program.loaders.values() if each.trained), default=0)
    if each_batch and name in DECAYS and epochs != optimizer.steps:
        low = next((index for index, rate in enumerate(rates) if rate <= 1e-3 * top), None)
        first = rates.index(max(rates))
        if low is not None and low >= first and low < 0.5 * len(rates):
            return _told(
                seen, f"{name} was stepped every batch: the rate fell from {top:.3g} to {rates[low]:.3g} by step {low} "
                f"of {len(rates)}.", "step the schedule once per epoch, after the loop over batches",
            )  # fmt: skip
        period = int(getattr(schedule, "T_max", 0) or 0)
        if name == "CosineAnnealingLR" and period and optimizer.steps >= 2.5 * period:
            return _told(
                seen, f"CosineAnnealingLR(T_max={period}) was stepped every batch, {seen.steps} times: the "
                "learning rate rises again instead of ending low.",
                "step it once per epoch, or set T_max to all batches of the run",
            )  # fmt: skip
    total = int(getattr(schedule, "total_steps", 0) or getattr(schedule, "T_max", 0) or 0)
    if not each_batch and total >= 4 * max(1, seen.steps) and total >= 0.5 * optimizer.steps and seen.steps >= 2:
        return _told(
            seen, f"{name} plans {total} steps and was stepped {seen.steps} times in {optimizer.steps} batches: "
            f"the rate stayed between {min(rates):.3g} and {max(rates):.3g}.", "step it after every batch",
        )  # fmt: skip
    rising = rates == sorted(rates) and rates[-1] > rates[0]
    if not each_batch and name in WARMING and seen.steps >= 2 and rising and rates[-1] < 0.9 * _base(schedule):
        return _told(
            seen, f"{name} was stepped {seen.steps} times in {optimizer.steps} batches: the warm-up never ended. "
            f"The rate reached {rates[-1]:.3g} of {_base(schedule):.3g}.", "step it after every batch",
        )  # fmt: skip
    if not each_batch and name == "LambdaLR" and seen.steps >= 2 and max(rates) < 0.1 * _base(schedule):
        return _told(
            seen, f"{name} was stepped {seen.steps} times in {optimizer.steps} batches: the rate never exceeded "
            f"{max(rates):.3g} of {_base(schedule):.3g}.", "step it after every batch, or warm up in epochs",
        )  # fmt: skip
    return None


def _base(schedule: object) -> float:
    return max((float(rate) for rate in getattr(schedule, "base_lrs", [])), default=0.0)


def _told(seen: ScheduleSeen, what: str, fix: str) -> Told:
    return told("lr-schedule-bug", [what], place=seen.place, fix=fix, weight=2.1)
