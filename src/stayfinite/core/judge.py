"""One step through the whole policy: ladder, probation and slow tests, over one memory that can be saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stayfinite.core.decision import Action, Decision
from stayfinite.core.doubts import Probation, finite_numbers, probation_from
from stayfinite.core.finding import Finding
from stayfinite.core.ladder import NOTHING_TO_DO, LadderState, decide
from stayfinite.core.policy import Policy
from stayfinite.core.probation import Followed, Means, Move, follow, start_anew
from stayfinite.core.rungs import Options, RungState
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, Verdict, examine, spread
from stayfinite.core.trends import TrendState, forget_levels
from stayfinite.core.trends import follow as follow_trends
from stayfinite.errors import StateError

VERSION = 1
"""Of the saved memory."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All that the policy remembers between steps."""

    ladder: LadderState = field(default_factory=LadderState)
    trends: TrendState = field(default_factory=TrendState)
    probation: Probation = field(default_factory=Probation)

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
                    f"guard state has version {plain['version']!r}; this stayfinite reads {VERSION}",
                    fix="resume with the version of stayfinite that wrote it, or start a new guard",
                )
            ladder, trends = dict(plain["ladder"]), dict(plain["trends"])
            seen = dict(ladder.pop("spikes"))
            spikes = SpikeState(**seen | {name: finite_numbers(seen[name]) for name in ("losses", "norms")})
            tried = dict(ladder.pop("rungs"))
            if tried["last_rollback"] is not None:
                tried["last_rollback"] = (int(tried["last_rollback"][0]), str(tried["last_rollback"][1]))
            for name in ("current", "medians"):
                trends[name] = tuple(map(float, trends[name]))
            trends["reported"] = frozenset(trends["reported"])
            return cls(
                LadderState(spikes=spikes, rungs=RungState(**tried), **ladder),
                TrendState(**trends),
                probation_from(plain.get("probation", {})),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(
                f"not a guard state: {type(error).__name__}: {error}",
                fix="pass what guard.state_dict() returned",
            ) from error


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the policy makes of one step."""

    decision: Decision
    findings: tuple[Finding, ...]
    memory: Memory
    followed: Followed | None = None
    """What the losses since an unusual step ask for; None where they ask for nothing."""


def as_veto(judgement: Judgement) -> Judgement:
    """The same judgment where nothing beyond a veto was done about it."""
    decision = judgement.decision
    return replace(judgement, decision=replace(decision, action=Action.VETO)) if decision.refused else judgement


def judge(
    signals: Signals,
    memory: Memory,
    policy: Policy,
    *,
    max_norm: float | None = None,
    verdict: Verdict | None = None,
    limit: float = math.inf,
    options: Options = NOTHING_TO_DO,
) -> Judgement:
    """Decide on a step, follow what came of earlier ones, and look for slow trouble.

    Arguments:
        signals: what was measured.
        memory: what is remembered of the steps before.
        policy: the settings.
        max_norm: the norm that gradients are clipped to, if they are.
        verdict: what a device has already decided and acted upon; None to judge here.
        limit: with it, the highest compressed norm that the device has allowed.
        options: what could be done beyond a veto.
    """
    before = memory.ladder.spikes
    if verdict is None:
        verdict, limit = examine(signals.loss, signals.grad_norm, before, policy)
    decision, ladder = decide(
        signals, memory.ladder, policy, max_norm=max_norm, verdict=verdict, limit=limit, options=options
    )
    if policy.mode == "watch":
        decision = _watched(decision)
    findings, trends = follow_trends(decision, memory.trends, policy)
    after = Memory(ladder, trends, memory.probation)
    if policy.spikes != "bound" or decision.refused or not signals.finite:
        return Judgement(decision, findings, after)
    followed = follow(
        signals,
        verdict,
        memory.probation,
        policy,
        bounded=_bounded(verdict, limit, before),
        means=Means(known_good=options.rollback_to, forward=options.rerun),
    )
    after = adopt(after, followed)
    return Judgement(decision, findings, after, None if followed.move is Move.NOTHING else followed)


def adopt(memory: Memory, followed: Followed) -> Memory:
    """The memory after what the losses have shown."""
    ladder, trends = memory.ladder, memory.trends
    if ladder.spikes.factor != followed.state.factor:
        ladder = replace(ladder, spikes=replace(ladder.spikes, factor=followed.state.factor))
    if followed.move in (Move.NEW_PHASE, Move.RETURN):
        trends = forget_levels(trends)
    return Memory(ladder, trends, followed.state)


def after_rollback(memory: Memory, then: Memory) -> Memory:
    """What is remembered after a rollback to where ``then`` was remembered: what was tried goes on counting."""
    ladder = replace(memory.ladder, spikes=then.ladder.spikes, in_a_row=0, searching=0)
    probation = replace(
        then.probation,
        doubt=None,
        trial=None,
        factor=memory.probation.factor,
        ceiling=memory.probation.ceiling,
        backs=memory.probation.backs,
    )
    return Memory(ladder, then.trends, probation)


def fresh_phase(memory: Memory) -> Memory:
    """The memory at the beginning of a phase that was announced: what was usual before it does not count."""
    spikes = SpikeState(factor=memory.probation.factor)
    return Memory(replace(memory.ladder, spikes=spikes), forget_levels(memory.trends), start_anew(memory.probation))


def _watched(decision: Decision) -> Decision:
    """What becomes of a decision where the guard only looks on."""
    decision = replace(decision, fault=False)
    if decision.limit is not None:
        reason = decision.reason.replace("limited to", "would be limited to")
        return replace(decision, action=Action.ACCEPT, reason=f"{reason} (monitor only)", limit=None)
    if not decision.refused:
        return decision
    # An fp16 scaler keeps gradients that are not finite from the weights by itself.
    signals = decision.signals
    taken = "step taken" if signals.loss_scale is None or not signals.bad_count else "left to the scaler"
    return replace(decision, action=Action.ACCEPT, reason=f"{decision.reason} (monitor only: {taken})")


def _bounded(verdict: Verdict, limit: float, before: SpikeState) -> float | None:
    """What a gradient was allowed to be over the usual norm, where it was more."""
    if not verdict or Verdict.GRADIENT_SPIKE not in verdict or not before.norms:
        return None
    return math.exp(min(limit - spread(before.norms)[0], 700.0))
