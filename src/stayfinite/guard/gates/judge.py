"""The policy with its memory: the one place in the guard where judgments are remembered."""

from __future__ import annotations

from collections.abc import Callable

from stayfinite.core.judge import Judgement, Memory, judge
from stayfinite.core.policy import Policy
from stayfinite.core.rungs import Options
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import Verdict


class Judge:
    """Judges steps in their order and remembers what the policy needs to remember."""

    def __init__(self, policy: Policy, max_norm: float | None) -> None:
        self.policy = policy
        self.memory = Memory()
        self.options: Callable[[], Options] = Options
        """Tells what could be done beyond a veto at this moment."""
        self.max_norm = max_norm
        """What gradients are clipped to."""

    def __call__(self, signals: Signals, verdict: Verdict | None, limit: float) -> Judgement:
        """Judge the next step; ``verdict`` and ``limit`` are what a device has already acted upon."""
        judgement = judge(
            signals,
            self.memory,
            self.policy,
            max_norm=self.max_norm,
            verdict=verdict,
            limit=limit,
            options=self.options(),
        )
        self.memory = judgement.memory
        return judgement
