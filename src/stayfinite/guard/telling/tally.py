"""Running totals of a run."""

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

from stayfinite.core.decision import Action, Decision
from stayfinite.report.terminal import Totals

FEWEST = 64
"""Finite steps of a run that is judged by the share of bounded ones."""

LAST = 16
"""Losses at the end whose median is the end."""

FAR_ABOVE = 2.0
"""An end this many times the first loss above it is no noise: 3 times a positive loss."""


class Tally(Totals):
    """Counts steps and remembers extremes, for the summary."""

    _looks = 0
    _taken = 0
    """Finite steps that were taken."""
    _first_loss = math.nan

    def __init__(self) -> None:
        super().__init__()
        self._last_losses: deque[float] = deque(maxlen=LAST)

    def count(self, decision: Decision) -> None:
        signals = decision.signals
        self.steps += 1
        self.bad.update(signals.bad_parameters)
        if decision.refused:
            self.vetoes[decision.why or decision.code] += 1
        elif not signals.finite:
            self.watched[decision.code] += 1
        else:
            self.last_loss = signals.loss
            self._taken += 1
            if self._taken == 1:
                self._first_loss = signals.loss
            self._last_losses.append(signals.loss)
            self.clipped += decision.action is Action.CLIP
            self.bounded += decision.action is Action.BOUND
        scale = signals.loss_scale
        if scale is not None and math.isfinite(scale):
            self.lowest_scale = scale if self.lowest_scale is None else min(scale, self.lowest_scale)

    def hear(self, event: str) -> None:
        """Count an event that is not a decision: a rollback after harm, a new phase."""
        if event in ("rollback", "new-phase"):
            self.events[event] += 1

    def see(self, cause: str, step: int) -> None:
        """Record a post-training sign; it may be reported again when it returns."""
        self.signs.setdefault(cause, step)

    @property
    def mostly_bounded(self) -> str:
        """Sentence for a run that limiting its gradients did not save; empty for any other.

        Where most steps had to be bounded and the loss ended far above its start, no odd batch is the cause.
        """
        if self._taken < FEWEST or 2 * self.bounded <= self._taken:
            return ""
        if median(self._last_losses) <= self._first_loss + FAR_ABOVE * abs(self._first_loss):
            return ""
        return f"{self.bounded:,} of {self._taken:,} steps were bounded: the learning rate is likely too high"

    @property
    def refused(self) -> int:
        """Count of refused steps."""
        return self.vetoes.total()

    @property
    def unusual(self) -> dict[str, int]:
        """Counts of bounded finite steps, and of rollbacks caused by one."""
        return {"bounded": self.bounded, "rollbacks": self.events["rollback"]}

    def look(self, names: tuple[str, ...], indices: Sequence[int], norms: Sequence[float]) -> None:
        """Record a sample: the gradient norms of parameters with a gradient."""
        self._looks += 1
        if len(indices) == len(names) and 0.0 not in norms:
            self.silent = ()
            return
        measured = dict(zip(map(names.__getitem__, indices), norms, strict=True))
        # At the first step half of every fresh adapter has a gradient of exactly 0, because the other half is 0.
        still = {name for name, norm in measured.items() if norm == 0 and self._looks > 1}
        self.silent = tuple(name for name in names if name not in measured or name in still)
