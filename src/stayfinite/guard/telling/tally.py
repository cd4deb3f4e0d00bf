"""Running totals of a run."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from stayfinite.core.decision import Action, Decision

WORST = 3
"""Worst parameters named in the summary."""


class Tally:
    """Counts steps and remembers extremes, for the summary."""

    def __init__(self) -> None:
        self._steps = 0
        self._clipped = self._bounded = 0
        self._events: Counter[str] = Counter()
        self._vetoes: Counter[str] = Counter()
        self._watched: Counter[str] = Counter()
        self._lowest_scale: float | None = None
        self._last_loss = math.nan
        self._bad: Counter[str] = Counter()
        self._signs: dict[str, int] = {}
        self._silent: tuple[str, ...] = ()
        self._looks = 0
        self.slowest: tuple[int, str, float, float] | None = None
        """Slowest rank, its host, its own share of a step, the mean share of all."""

    def count(self, decision: Decision) -> None:
        signals = decision.signals
        self._steps += 1
        self._bad.update(signals.bad_parameters)
        if decision.refused:
            self._vetoes[decision.code] += 1
        elif not signals.finite:
            self._watched[decision.code] += 1
        else:
            self._last_loss = signals.loss
            self._clipped += decision.action is Action.CLIP
            self._bounded += decision.action is Action.BOUND
        scale = signals.loss_scale
        if scale is not None and math.isfinite(scale):
            self._lowest_scale = scale if self._lowest_scale is None else min(scale, self._lowest_scale)

    def hear(self, event: str) -> None:
        """Count an event that is not a decision: a rollback after harm, a new phase."""
        if event in ("rollback", "new-phase"):
            self._events[event] += 1

    def see(self, cause: str, step: int) -> None:
        """Record a post-training sign; it may be reported again when it returns."""
        self._signs.setdefault(cause, step)

    @property
    def unusual(self) -> dict[str, int]:
        """Counts of bounded finite steps, and of rollbacks caused by one."""
        return {"bounded": self._bounded, "rollbacks": self._events["rollback"]}

    def look(self, names: tuple[str, ...], indices: Sequence[int], norms: Sequence[float]) -> None:
        """Record a sample: the gradient norms of parameters with a gradient."""
        self._looks += 1
        if len(indices) == len(names) and 0.0 not in norms:
            self._silent = ()
            return
        measured = dict(zip(map(names.__getitem__, indices), norms, strict=True))
        # At the first step half of every fresh adapter has a gradient of exactly 0, because the other half is 0.
        still = {name for name, norm in measured.items() if norm == 0 and self._looks > 1}
        self._silent = tuple(name for name in names if name not in measured or name in still)

    def figures(self) -> dict[str, Any]:
        """Arguments of :func:`stayfinite.report.terminal.summary`."""
        bad = [(name, f"NaN or inf in {count} step{'s' * (count > 1)}") for name, count in self._bad.most_common(WORST)]
        return {
            "steps": self._steps,
            "vetoes": self._vetoes,
            "watched": self._watched,
            "clipped": self._clipped,
            "bounded": self._bounded,
            "rollbacks": self._events["rollback"],
            "phases": self._events["new-phase"],
            "last_loss": self._last_loss,
            "lowest_scale": self._lowest_scale,
            "worst": bad,
            "signs": self._signs,
            "silent": self._silent,
            "slowest": self.slowest,
        }
