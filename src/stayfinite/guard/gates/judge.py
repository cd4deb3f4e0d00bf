"""The policy with its memory."""

from __future__ import annotations

from collections.abc import Callable

from stayfinite.core.judge import Judgement, Memory, judge
from stayfinite.core.policy import Policy
from stayfinite.core.rungs import Options
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import Verdict


class Judge:
    """Judges steps in order and keeps the policy's memory."""

    def __init__(self, policy: Policy, max_norm: float | None) -> None:
        self.policy = policy
        self.memory = Memory()
        self.options: Callable[[], Options] = Options
        """Returns the actions available beyond a veto."""
        self.max_norm = max_norm
        """Gradient clipping norm."""

    def __call__(self, signals: Signals, verdict: Verdict | None, limit: float) -> Judgement:
        """Judge the next step; ``verdict`` and ``limit`` are those the device already acted on."""
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
