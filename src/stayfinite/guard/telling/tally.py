"""What a run came to, counted as it goes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from operator import gt
from typing import Any

from stayfinite.core.decision import Action, Decision

WORST = 3
"""How many of the worst parameters the summary names."""


class Tally:
    """Counts steps and remembers the extremes, for the summary at close."""

    def __init__(self) -> None:
        self._steps = 0
        self._clipped = 0
        self._vetoes: Counter[str] = Counter()
        self._watched: Counter[str] = Counter()
        self._lowest_scale: float | None = None
        self._last_loss = math.nan
        self._bad: Counter[str] = Counter()
        self._peaks: dict[str, float] = {}
        self._known: tuple[tuple[str, ...], tuple[int, ...]] = ((), ())
        self._highest: list[float] = []
        """Peaks of the parameters that the last look was at, in its order."""
        self._silent: tuple[str, ...] = ()
        self._looks = 0

    def count(self, decision: Decision) -> None:
        """Take in one step."""
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
        scale = signals.loss_scale
        if scale is not None and math.isfinite(scale):
            self._lowest_scale = scale if self._lowest_scale is None else min(scale, self._lowest_scale)

    def look(self, names: tuple[str, ...], indices: Sequence[int], norms: Sequence[float]) -> None:
        """Take in a closer look: the gradient norms of the parameters that have a gradient."""
        self._looks += 1
        known = (names, tuple(indices))
        if known != self._known:
            self._known, self._highest = known, [self._peaks.get(names[index], 0.0) for index in indices]
        # At most steps none is higher than ever.
        if not math.isfinite(sum(norms)) or any(map(gt, norms, self._highest)):
            pairs = zip(norms, self._highest, strict=True)
            self._highest = [max(norm, highest) if math.isfinite(norm) else highest for norm, highest in pairs]
            self._peaks.update(zip(map(names.__getitem__, indices), self._highest, strict=True))
        if len(indices) == len(names) and 0.0 not in norms:
            self._silent = ()
            return
        heard = dict(zip(map(names.__getitem__, indices), norms, strict=True))
        # At the first step half of every fresh adapter has a gradient of exactly 0, because the other half is 0.
        still = {name for name, norm in heard.items() if norm == 0 and self._looks > 1}
        self._silent = tuple(name for name in names if name not in heard or name in still)

    def figures(self) -> dict[str, Any]:
        """The arguments of :func:`stayfinite.report.summary.summary`."""
        bad = [(name, f"not finite in {count} step{'s' * (count > 1)}") for name, count in self._bad.most_common(WORST)]
        peaks = sorted(self._peaks.items(), key=lambda item: -item[1])[:WORST]
        return {
            "steps": self._steps,
            "vetoes": self._vetoes,
            "watched": self._watched,
            "clipped": self._clipped,
            "last_loss": self._last_loss,
            "lowest_scale": self._lowest_scale,
            "worst": bad or [(name, f"gradient norm up to {norm:.3g}") for name, norm in peaks],
            "silent": self._silent,
        }
