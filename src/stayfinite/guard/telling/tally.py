"""Running totals of a run."""

import math
from collections.abc import Sequence

from stayfinite.core.decision import Action, Decision
from stayfinite.report.terminal import Totals


class Tally(Totals):
    """Counts steps and remembers extremes, for the summary."""

    _looks = 0

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
