"""The learning test: the loss on one batch falls within a few steps, or the reason is found."""

import math
import time
from collections.abc import Iterator

from torch import Tensor

from stayfinite.autopsy.tracing.looking import dense
from stayfinite.errors import UsageError
from stayfinite.inspection.bench.bench import FEW, Bench
from stayfinite.inspection.bench.passes import one_update
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes import descent
from stayfinite.inspection.probes.lr_range import RANGE, look_at_rates

GROUP = "Learning"
TITLE = "overfitting one batch"
BUDGET = 5.0  # seconds for the steps at the planned rate
STANDS_STILL = 1e-4  # relative drop below which the rate may be too low
KNOWN_TO_STAND_STILL = 1e-2  # the same, for a training known to stagnate
USUAL_CLIP = 1.0
SLOWER = (1e-2, 1e-4, 1e-6, 1e-9)
"""Multipliers to try; for an absurd rate, even smaller ones ..."""
LOWEST = 1e-7
"""... down to a rate at which any training is slow, so that some rate works."""
FURTHER = 3.0
"""A rate is too high if a small part of it drops the loss this many times further ..."""
FAR = 0.1
"""... or by this share of the loss. At a working rate, 1 % of it does 1 % as much."""
FASTER = (1e2, 1e4, 1e6)
REASONS = (
    "lr-too-high", "cannot-overfit-batch", "lr-too-low", "lr-zero", "params-frozen", "detached-loss", "zero-gradient",
    "params-not-in-optimizer", "bf16-lost-updates",
)  # fmt: skip


def look(bench: Bench, notes: Notes) -> None:
    """Take some steps on the batch, and sweep the learning rate if requested."""
    _look_at_descent(bench, notes)
    if bench.lr_range:
        try:
            look_at_rates(bench, notes)
        except UsageError as error:
            notes.check(GROUP, RANGE, skipped=str(error).splitlines()[0])


def _look_at_descent(bench: Bench, notes: Notes) -> None:
    """Take some steps; if the loss does not fall, find a rate at which it does."""
    reason = _obstacle(bench)
    if reason:
        notes.check(GROUP, TITLE, *REASONS, skipped=reason)
        return
    steps = descent.affordable(_seconds_a_step(bench), bench.steps, BUDGET)
    ramp = descent.warms_up(bench)
    taken = _descend(bench, steps, lambda number: (number + 1) / steps if ramp else 1.0)
    if taken.error:
        notes.check(GROUP, TITLE, *REASONS, skipped=f"the optimizer's step fails: {taken.error}")
        return
    _Looking(bench, notes, taken, steps).conclude()


class _Looking:
    """Interprets the steps taken, and decides which more to take."""

    def __init__(self, bench: Bench, notes: Notes, taken: descent.Descent, steps: int) -> None:
        self._bench, self._notes, self._taken, self._steps = bench, notes, taken, steps
        self._first = taken.losses[0]
        self._noise = _noise(bench, taken)

    def conclude(self) -> None:
        taken = self._taken
        if taken.falls(self._noise):
            if taken.is_restless(self._noise) and self._overshoots():
                return
            still = KNOWN_TO_STAND_STILL if self._bench.stalled else STANDS_STILL
            if taken.drop < still * abs(self._first):
                self._ask_for_a_higher_rate()
            self._say(taken.course())
        elif not taken.moved:
            self._notes.saw("learning.falls", False, f"{taken.course()}, and no weight moves")
            self._say("no weight moves")
        elif self._noise > max(abs(taken.expected) * self._steps, descent.RESOLUTION * abs(self._first)):
            self._skip(f"re-running the step changes the loss by {self._noise:.2g}")
        elif abs(taken.expected) * self._steps < descent.RESOLUTION * abs(self._first) and taken.drop > -self._slack():
            falls = self._ask_for_a_higher_rate()
            seen = "it falls at a much higher rate" if falls else "it does not fall at a higher rate either"
            self._say(f"rate too small to see a fall in {self._steps} steps; {seen}")
        elif math.isfinite(taken.losses[-1]) and taken.expected >= 0:
            self._skip("the first update does not follow the gradient (weight decay or old moments)")
        else:
            self._ask_for_a_lower_rate()

    def _ask_for_a_lower_rate(self) -> None:
        taken, notes = self._taken, self._notes
        clipped = self._again(1.0, clip=USUAL_CLIP)
        if clipped.falls(self._noise):
            if clipped.is_restless(self._noise) and self._overshoots():
                return
            self._say(f"{clipped.course()} with gradients clipped at {USUAL_CLIP:g}; without, {taken.course()}")
            return
        notes.saw("learning.falls", False, taken.course())
        for factor in self._slower():
            slower = self._again(factor)
            if slower.falls(self._noise):
                notes.saw("learning.falls_at", factor, slower.course())
                break
        self._say(taken.course())

    def _overshoots(self) -> bool:
        """Whether a small part of the rate reaches much lower: the fall then only leads to a constant answer."""
        others = [self._taken]
        for factor in self._slower():
            slower = self._again(factor)
            if not slower.falls(self._noise):
                continue
            if len(others) == 1 and self._is_far_below(slower, self._taken):
                others.append(self._again(1.0, clip=USUAL_CLIP))
            if all(self._is_far_below(slower, other) for other in others):
                self._notes.saw("learning.falls", False, self._taken.course())
                self._notes.saw("learning.falls_at", factor, slower.course())
                self._say(self._taken.course())
                return True
            if not slower.is_restless(self._noise):
                break
        return False

    def _is_far_below(self, slower: descent.Descent, taken: descent.Descent) -> bool:
        if not all(map(math.isfinite, taken.losses)):
            return True
        fallen = max(0.0, self._first - taken.end)
        gap = taken.end - slower.end
        least = max(descent.CLEARLY * abs(self._first), FURTHER * self._noise)
        return gap > max(least, min((FURTHER - 1.0) * fallen, FAR * abs(self._first)))

    def _ask_for_a_higher_rate(self) -> bool:
        """Whether the loss clearly falls at a much higher rate; then also record the update size."""
        faster = ((factor, self._again(factor)) for factor in FASTER)
        clearly = max(descent.CLEARLY, 5 * KNOWN_TO_STAND_STILL if self._bench.stalled else 0.0) * abs(self._first)
        found = next(((f, each) for f, each in faster if each.falls(self._noise) and each.drop > clearly), None)
        if found is None:
            return False
        if self._bench.stalled:
            self._notes.saw("learning.falls_at_higher", found[0], found[1].course())
        with descent.at_planned_rate(self._bench):
            update = one_update(self._bench.optimizer, self._bench.trainable, self._bench.first, self._bench.kept)
        if update.ratios:
            self._notes.saw("update_ratio.largest", max(update.ratios.values()), "one step of the optimizer")
        return True

    def _slower(self) -> Iterator[float]:
        """Smaller and smaller multipliers of the rate."""
        yield from SLOWER
        planned, factor = max(map(descent.planned_rate, self._bench.optimizer.param_groups)), SLOWER[-1]
        while math.isfinite(planned) and planned * factor > LOWEST:
            factor *= 1e-3
            yield factor

    def _again(self, factor: float, clip: float | None = None) -> descent.Descent:
        return _descend(self._bench, self._steps, lambda _: factor, clip=clip)

    def _slack(self) -> float:
        return max(self._noise, descent.RESOLUTION * abs(self._first))

    def _say(self, seen: str) -> None:
        seen += f", with {FEW} rows of the batch" if self._bench.lean is not self._bench.step else ""
        self._notes.check(GROUP, TITLE, *REASONS, seen=seen)

    def _skip(self, reason: str) -> None:
        self._notes.check(GROUP, TITLE, *REASONS, skipped=reason)


def _obstacle(bench: Bench) -> str:
    """Why nothing can be learned; empty if something can."""
    if bench.steps == 0:
        return "off (steps=0)"
    if not bench.first.worked:
        return "no loss to minimize"
    if not math.isfinite(float(bench.first.loss)):
        return f"the loss is {float(bench.first.loss)}"
    if type(bench.optimizer).__name__ == "LBFGS":
        return "LBFGS chooses its own steps"
    gradients = [dense(g) for g in bench.first.gradients.values() if g is not None]
    if not all(bool(gradient.isfinite().all()) for gradient in gradients):
        return "gradients are NaN or inf"
    if not any(bool((gradient != 0).any()) for gradient in gradients):
        return "every gradient is 0"
    return ""


def _seconds_a_step(bench: Bench) -> float:
    """Time of the first pass; if long, of another one, because the first includes one-time costs."""
    first = bench.first.seconds
    if descent.affordable(first, bench.steps, BUDGET) == bench.steps:
        return first
    start = time.perf_counter()
    _descend(bench, 1)
    return min(first, time.perf_counter() - start)


def _noise(bench: Bench, taken: descent.Descent) -> float:
    """How much repeated passes differ; not measured if few rows fall clearly."""
    first = taken.losses[0]
    if bench.lean is bench.step:
        again = bench.first.loss
        value = bench.uphill * float(again) if isinstance(again, Tensor) else first
    elif taken.falls() and taken.drop > descent.CLEARLY * abs(first):
        return 0.0
    else:
        value = (_descend(bench, 0).losses or (first,))[0]
    return abs(value - first) if math.isfinite(value) and math.isfinite(first) else 0.0


def _descend(
    bench: Bench, steps: int, rates: descent.Rates = lambda _: 1.0, clip: float | None = None
) -> descent.Descent:
    """Take some steps, on few rows if a pass is slow; for a maximizing optimizer, a rise counts as a fall."""
    taken = descent.descend(bench, steps, rates, clip=clip, step=bench.lean)
    if bench.uphill > 0:
        return taken
    losses = tuple(-loss for loss in taken.losses)
    return descent.Descent(losses=losses, expected=-taken.expected, moved=taken.moved, error=taken.error)
