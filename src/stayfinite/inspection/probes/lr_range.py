"""The learning-rate range test: raise the rate from far too low to far too high and watch the loss."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes, Table
from stayfinite.inspection.probes.descent import descend, planned_rate

RANGE = "learning-rate range"
STEPS = 60
SMOOTHING = 0.6  # weight of the past in the smoothed loss
LOST = 4.0  # the loss diverged when it exceeds the best by this many times the best fall
NOTICEABLE = 0.02  # share of the total fall after which a rate counts as learning
ROWS = 20
WIDTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LrRange:
    """The result of a learning-rate sweep."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    """Before the step at each rate; the last may be non-finite."""
    smoothed: tuple[float, ...]
    starts: float | None
    """The rate at which the loss starts to fall; None if never."""
    steepest: float | None
    """The rate at which it falls fastest."""
    diverges: float | None
    """The rate at which it diverges; None if never."""
    planned: float
    """The optimizer's own rate."""

    @property
    def suggested(self) -> float | None:
        """The rate of the steepest fall, at most a tenth of the diverging one."""
        if self.steepest is None:
            return None
        return self.steepest if self.diverges is None else min(self.steepest, self.diverges / 10)

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON, sufficient to plot it."""
        names = ("starts", "steepest", "diverges", "planned", "suggested")
        series = {name: list(getattr(self, name)) for name in ("rates", "losses", "smoothed")}
        return series | {name: getattr(self, name) for name in names}


def learning_rate_range(bench: Bench, lowest: float = 1e-7, highest: float = 10.0, steps: int = STEPS) -> LrRange:
    """Sweep the learning rate on the bench's batch, then restore everything; ends when the loss diverges.

    Raises UsageError if the rates are not a range, or the step fails.
    """
    if not 0 < lowest < highest < math.inf or steps < 5:
        raise UsageError(
            f"invalid sweep: {lowest:g} to {highest:g} in {steps} steps",
            fix="lowest above 0, highest above lowest, at least 5 steps",
        )
    planned = max(planned_rate(group) for group in bench.optimizer.param_groups)
    growth = (highest / lowest) ** (1 / (steps - 1))
    rates = [lowest * growth**number for number in range(steps)]
    # Groups keep their proportions; if all rates are 0, they all get the same rate.
    taken = descend(bench, steps, lambda number: rates[number] / planned) if planned > 0 else None
    if taken is None or taken.error or len(taken.losses) < 2:
        reason = "the learning rate is 0" if taken is None else taken.error or "the loss is NaN or inf"
        raise UsageError(f"cannot sweep the learning rate: {reason}", fix="make a single step work first")
    # The loss before a step reflects the previous rates.
    losses = taken.losses[1:]
    return _read(tuple(rates[: len(losses)]), losses, taken.losses[0], planned)


def _read(rates: tuple[float, ...], losses: tuple[float, ...], first: float, planned: float) -> LrRange:
    smoothed: list[float] = []
    for loss in losses:
        before = smoothed[-1] if smoothed else first
        smoothed.append(SMOOTHING * before + (1 - SMOOTHING) * loss if math.isfinite(loss) else loss)
    finite = [value for value in smoothed if math.isfinite(value)]
    best = min(finite, default=first)
    fall = first - best
    end = next((n for n, value in enumerate(smoothed) if _lost(value, first, best, fall)), len(smoothed))
    diverges = rates[end] if end < len(rates) else None
    fell = [first, *smoothed[:end]]
    start = next((n for n, value in enumerate(fell[1:]) if fall > 0 and first - value > NOTICEABLE * fall), None)
    slopes = [after - before for before, after in pairwise(fell)]
    steepest = min(range(len(slopes)), key=lambda n: slopes[n], default=None)
    falls = start is not None and steepest is not None and slopes[steepest] < -1e-6 * abs(first)
    return LrRange(
        rates=rates,
        losses=losses,
        smoothed=tuple(smoothed),
        starts=rates[start] if falls and start is not None else None,
        steepest=rates[steepest] if falls and steepest is not None else None,
        diverges=diverges,
        planned=planned,
    )


def _lost(value: float, first: float, best: float, fall: float) -> bool:
    return not math.isfinite(value) or (value > first and value - best > LOST * max(fall, 0.05 * abs(first)))


def look_at_rates(bench: Bench, notes: Notes) -> LrRange:
    """Sweep the rate and add a line and a chart to the notes."""
    found = learning_rate_range(bench)
    if found.suggested is None:
        seen = f"the loss does not fall at any rate from {found.rates[0]:.0e} to {found.rates[-1]:.0e}"
    else:
        ends = "and never diverges" if found.diverges is None else f"and diverges at {found.diverges:.1e}"
        falls = f"falls from {found.starts:.1e} on {ends}"
        seen = f"{falls}; try {found.suggested:.1e} (optimizer: {found.planned:.1e})"
    notes.check("Learning", RANGE, seen=seen)
    notes.tables.append(drawn(found))
    return found


def drawn(found: LrRange) -> Table:
    """The smoothed loss over the rate as a bar chart."""
    finite = [value for value in found.smoothed if math.isfinite(value)]
    low, first = min(finite, default=0.0), found.losses[0]
    top = first + max(0.5 * (first - low), 1e-12) if math.isfinite(first) else low + 1.0
    every = max(1, len(found.rates) // ROWS)
    rows = []
    for number in range(0, len(found.rates), every):
        value = found.smoothed[number]
        share = 1.0 if not math.isfinite(value) else min(1.0, (value - low) / max(top - low, 1e-12))
        after = found.rates[number + every] if number + every < len(found.rates) else math.inf
        mark = _mark(found, found.rates[number], after)
        rows.append((f"{found.rates[number]:.1e}", f"{value:.4g}", "█" * max(1, round(WIDTH * share)), mark))
    return Table(title="Loss by learning rate", columns=("rate", "loss", "", ""), rows=tuple(rows))


def _mark(found: LrRange, low: float, high: float) -> str:
    marks = {"try this": found.suggested, "falls fastest": found.steepest, "diverges": found.diverges}
    marks[f"planned {found.planned:.1e}"] = found.planned
    return ", ".join(name for name, rate in marks.items() if rate is not None and low <= rate < high)
