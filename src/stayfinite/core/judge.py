"""One step through the whole policy: the ladder and the slow tests, over one memory that can be saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stayfinite.core.decision import Action, Decision
from stayfinite.core.finding import Finding
from stayfinite.core.ladder import NOTHING_TO_DO, LadderState, decide
from stayfinite.core.policy import Policy
from stayfinite.core.rungs import Options, RungState
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, Verdict
from stayfinite.core.trends import TrendState, follow
from stayfinite.errors import StateError

VERSION = 1
"""Of the saved memory."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All that the policy remembers between steps."""

    ladder: LadderState = field(default_factory=LadderState)
    trends: TrendState = field(default_factory=TrendState)

    def to_json(self) -> dict[str, Any]:
        """As plain data that survives JSON."""
        plain = {"version": VERSION, **asdict(self)}
        plain["trends"]["reported"] = sorted(self.trends.reported)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Memory:
        """The memory that :meth:`to_json` wrote, also after a trip through JSON.

        Raises:
            StateError: it is of another version, or not a memory at all.
        """
        try:
            if plain["version"] != VERSION:
                raise StateError(
                    f"the saved guard state has version {plain['version']!r}, this stayfinite reads {VERSION}",
                    fix="resume with the stayfinite that wrote it, or start the guard fresh",
                )
            ladder, trends = dict(plain["ladder"]), dict(plain["trends"])
            seen = dict(ladder.pop("spikes"))
            spikes = SpikeState(**seen | {name: _finite(seen[name]) for name in ("losses", "norms")})
            tried = dict(ladder.pop("rungs"))
            if tried["last_rollback"] is not None:
                tried["last_rollback"] = (int(tried["last_rollback"][0]), str(tried["last_rollback"][1]))
            for name in ("current", "medians"):
                trends[name] = tuple(map(float, trends[name]))
            trends["reported"] = frozenset(trends["reported"])
            return cls(LadderState(spikes=spikes, rungs=RungState(**tried), **ladder), TrendState(**trends))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(
                f"this is not a saved guard state: {type(error).__name__}: {error}",
                fix="pass what guard.state_dict() returned",
            ) from error


def _finite(values: Iterable[Any]) -> tuple[float, ...]:
    # A window that was edited or damaged must not let a NaN in by the back door.
    numbers = tuple(map(float, values))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a window holds a number that is not finite")
    return numbers


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the policy makes of one step."""

    decision: Decision
    findings: tuple[Finding, ...]
    memory: Memory


def as_veto(judgement: Judgement) -> Judgement:
    """The same judgement where nothing beyond a veto was done about it."""
    decision = judgement.decision
    return replace(judgement, decision=replace(decision, action=Action.VETO)) if decision.refused else judgement


def judge(
    signals: Signals,
    memory: Memory,
    policy: Policy,
    *,
    max_norm: float | None = None,
    verdict: Verdict | None = None,
    options: Options = NOTHING_TO_DO,
) -> Judgement:
    """Decide on a step and look for slow trouble.

    Arguments:
        signals: what was measured.
        memory: what is remembered of the steps before.
        policy: the settings.
        max_norm: the norm that gradients are clipped to, if they are.
        verdict: what a device has already decided and acted upon; None to judge here.
        options: what could be done beyond a veto.
    """
    decision, ladder = decide(signals, memory.ladder, policy, max_norm=max_norm, verdict=verdict, options=options)
    if policy.mode == "watch" and decision.refused:
        # An fp16 scaler keeps gradients that are not finite from the weights by itself.
        taken = "step taken" if signals.loss_scale is None or not signals.bad_count else "left to the scaler"
        decision = replace(decision, action=Action.ACCEPT, reason=f"{decision.reason} (watching only: {taken})")
    findings, trends = follow(decision, memory.trends, policy)
    return Judgement(decision, findings, Memory(ladder, trends))
