"""Run the schedule ahead without training, then restore it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.loader_readings import length_of

GROUP = "Schedule"
TITLE = "learning-rate schedule"
MOST = 1_000  # steps to run ahead
FAR = 100.0  # a rate that grows by this factor runs away


def look(bench: Bench, notes: Notes) -> None:
    """Record the upcoming rates."""
    schedule = bench.scheduler
    reason = _obstacle(schedule)
    if reason:
        notes.check(GROUP, TITLE, "lr-schedule-bug", skipped=reason)
        return
    owner = getattr(schedule, "optimizer", None)
    if owner is not None and owner is not bench.optimizer:
        notes.saw("schedule.breaks_shape", "it sets the rate of another optimizer", type(schedule).__name__)
        notes.check(GROUP, TITLE, "lr-schedule-bug", seen="built for another optimizer")
        return
    epoch = length_of(bench.loader) if bench.loader is not None else None
    rates = _rates(schedule, bench.optimizer, min(MOST, max(100, epoch or 0)))
    wrong = _wrong(rates, max((float(rate) for rate in getattr(schedule, "base_lrs", [])), default=0.0))
    if wrong:
        notes.saw("schedule.breaks_shape", wrong, type(schedule).__name__)
    marks = {1: "", 10: "after 10 steps", 100: "after 100"} | ({epoch: "after an epoch of them"} if epoch else {})
    shown = [f"{rates[at - 1]:.3g} {words}".strip() for at, words in sorted(marks.items()) if 0 < at <= len(rates)]
    notes.check(GROUP, TITLE, "lr-schedule-bug", seen=", ".join(shown))


def _obstacle(schedule: Any) -> str:
    if schedule is None:
        return "no scheduler given"
    if not all(hasattr(schedule, name) for name in ("step", "state_dict", "load_state_dict")):
        return f"{type(schedule).__name__} is not a torch scheduler"
    if type(schedule).__name__ == "ReduceLROnPlateau":
        return "it follows validation, which has not run"
    return ""


def _rates(schedule: Any, optimizer: Any, steps: int) -> list[float]:
    """The rates of the first steps, starting with the current one."""
    rates: list[float] = []
    with _kept(schedule, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            rate = max((group["lr"] for group in optimizer.param_groups), key=abs)
            rates.append(math.nan if isinstance(rate, complex) else float(rate))
            try:
                schedule.step()
            except Exception:  # past its end, as OneCycleLR reports
                break
    return rates


@contextmanager
def _kept(schedule: Any, optimizer: Any) -> Iterator[None]:
    state = schedule.state_dict()
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    try:
        yield
    finally:
        schedule.load_state_dict(state)
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.update(before)


def _wrong(rates: list[float], base: float) -> str:
    bad = next((number for number, rate in enumerate(rates) if not math.isfinite(rate) or rate < 0), None)
    if bad is not None:
        return f"the rate is {rates[bad]:.3g} after {bad} steps"
    if len(rates) >= 100 and max(rates) == 0:
        return f"the rate is 0 in all of the first {len(rates):,} steps"
    if base > 0 and max(rates) > FAR * base:
        return f"the rate rises from {rates[0]:.3g} to {max(rates):.3g} in {rates.index(max(rates))} steps"
    return ""
