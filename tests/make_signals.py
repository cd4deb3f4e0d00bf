"""Signals for tests: made by hand, or drawn by Hypothesis so that windows fill, levels change and budgets run out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from stayfinite.core.decision import Action, Decision
from stayfinite.core.finding import Finding
from stayfinite.core.judge import Memory, judge
from stayfinite.core.policy import Policy
from stayfinite.core.signals import Signals

NAN, INF = math.nan, math.inf

NASTY = (NAN, INF, -INF, 0.0, -0.0, 1.7e308, -1.7e308, 5e-324, 1e-30, -2.0, 1e30)
numbers = st.floats(0.5, 2.0) | st.sampled_from((1.0, 1.0, 2.0, 50.0, 1e4)) | st.sampled_from(NASTY) | st.floats()
finite_numbers = numbers.filter(math.isfinite)
scales = st.sampled_from((None, None, 65536.0, 1.0, 0.5, 0.0, INF, NAN)) | st.floats()

small_policies = st.builds(
    Policy,
    spikes=st.sampled_from(("bound", "refuse", "ignore")),
    bound_factor=st.sampled_from((1.0, 4.0, 100.0)),
    window=st.integers(4, 16),
    warmup=st.integers(2, 4),
    sigmas=st.sampled_from((0.5, 3.0, 6.0, INF)),
    warmup_widening=st.sampled_from((1.0, 4.0)),
    level_change_after=st.integers(1, 6),
    max_vetoes_in_a_row=st.integers(0, 6),
    max_vetoes=st.none() | st.integers(0, 30),
    scale_search=st.integers(0, 6),
    zero_steps=st.integers(1, 3),
    constant_steps=st.integers(2, 4),
    lr_zero_steps=st.integers(1, 3),
    trend_steps=st.integers(4, 6),
    trend_windows=st.integers(2, 3),
    silent_steps=st.integers(1, 4),
)


@st.composite
def sequences(draw: st.DrawFn, most: int = 60) -> list[Signals]:
    """Steps in runs of equal ones, because windows and budgets care about what stays and what comes back."""
    run = st.tuples(
        numbers, numbers, scales, st.sampled_from((None, 0.0, 1e-3)), st.integers(0, 15), st.integers(1, 12)
    )
    steps = [values for *values, length in draw(st.lists(run, min_size=1, max_size=16)) for _ in range(length)]
    return [
        Signals(step=i, loss=loss, grad_norm=norm, loss_scale=scale, lr=lr, silent=silent, parameters=4)
        for i, (loss, norm, scale, lr, silent) in enumerate(steps[:most], start=1)
    ]


def signals(loss: float = 2.0, norm: float = 1.0, step: int = 1, **more: Any) -> Signals:
    """One step, ordinary unless told otherwise."""
    return Signals(step=step, loss=loss, grad_norm=norm, **more)


@dataclass
class Played:
    """What became of a series of steps."""

    decisions: list[Decision] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    @property
    def refused(self) -> list[int]:
        return [decision.step for decision in self.decisions if decision.refused]

    @property
    def actions(self) -> set[Action]:
        return {decision.action for decision in self.decisions}

    @property
    def causes(self) -> list[tuple[str, str]]:
        return [(finding.cause, finding.where) for finding in self.findings]


def play(steps: Iterable[Signals], policy: Policy | None = None, memory: Memory | None = None) -> Played:
    """Take the steps through the policy one by one, without ever stopping."""
    played = Played(memory=memory or Memory())
    for step in steps:
        judgement = judge(step, played.memory, policy or Policy())
        played.decisions.append(judgement.decision)
        played.findings.extend(judgement.findings)
        played.memory = judgement.memory
    return played
