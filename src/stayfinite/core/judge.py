"""Run one step through the whole policy (ladder, probation, trends), over one memory that can be saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from stayfinite.core.decision import MONITORING, Action, Decision
from stayfinite.core.doubts import Probation
from stayfinite.core.finding import Finding
from stayfinite.core.ladder import NOTHING_TO_DO, LadderState, Options, decide
from stayfinite.core.policy import Policy
from stayfinite.core.probation import Followed, Means, Move, follow, start_anew
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, Verdict, examine, spread
from stayfinite.core.trends import TrendState, forget_levels
from stayfinite.core.trends import follow as follow_trends
from stayfinite.errors import StateError

VERSION = 1
"""Version of the saved memory."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything the policy remembers between steps."""

    ladder: LadderState = field(default_factory=LadderState)
    trends: TrendState = field(default_factory=TrendState)
    probation: Probation = field(default_factory=Probation)

    def to_json(self) -> dict[str, Any]:
        """Plain data that survives JSON."""
        plain = {"version": VERSION, **asdict(self)}
        plain["trends"]["reported"] = sorted(self.trends.reported)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Memory:
        """Rebuild what :meth:`to_json` wrote.

        Raises:
            StateError: another version, or not a memory at all.
        """
        with reading_state(plain):
            memory: Memory = rebuilt(cls, {name: value for name, value in plain.items() if name != "version"})
            return memory


@contextmanager
def reading_state(plain: Mapping[str, Any]) -> Iterator[None]:
    """Context in which a saved state of the guard is read.

    Raises:
        StateError: it is of another version, or not a state at all.
    """
    try:
        if plain["version"] != VERSION:
            raise StateError(
                f"guard state has version {plain['version']!r}; this stayfinite reads {VERSION}",
                fix="resume with the version of stayfinite that wrote it, or start a new guard",
            )
        yield
    except StateError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StateError(
            f"not a guard state: {type(error).__name__}: {error}",
            fix="pass what guard.state_dict() returned",
        ) from error


def rebuilt(kind: Any, plain: Any) -> Any:
    """Rebuild a value of this type from what ``dataclasses.asdict`` and JSON made of it.

    Raises:
        KeyError, TypeError, ValueError: something is missing, unknown or of another type, or a window is not finite.
    """
    if is_dataclass(kind):
        make: Any = kind
        plain, types = dict(plain), get_type_hints(kind)
        if unknown := plain.keys() - types.keys():
            raise TypeError(f"unknown {', '.join(map(str, unknown))}")
        added = {each.name for each in fields(make) if each.metadata.get("added")}
        return make(**{n: rebuilt(each, plain[n]) for n, each in types.items() if n in plain or n not in added})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if plain is None else rebuilt(inner[0], plain)
    if origin is not tuple:
        return (dict if origin is Mapping else origin or kind)(plain)
    if inner[-1] is Ellipsis:
        inner = inner[:1] * len(plain)
    values = tuple(rebuilt(each, value) for each, value in zip(inner, plain, strict=True))
    # An edited or damaged file must not bring in a NaN.
    if not all(math.isfinite(each) for each in values if isinstance(each, float)):
        raise ValueError("a window holds NaN or inf")
    return values


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of the policy for one step."""

    decision: Decision
    findings: tuple[Finding, ...]
    memory: Memory
    followed: Followed | None = None
    """Action required by the losses after an unusual step; None if nothing is."""


def as_veto(judgement: Judgement) -> Judgement:
    """The same judgment with any refusal reduced to a veto."""
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
    """Decide on a step, follow up on earlier unusual ones, and look for slow trends.

    Arguments:
        max_norm: gradient clipping norm; None for no clipping.
        verdict: what the device already decided and did; None to judge here.
        limit: log of the highest norm that the device allowed; only with ``verdict``.
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
    """Update the memory with the result of the probation."""
    ladder, trends = memory.ladder, memory.trends
    if ladder.spikes.factor != followed.state.factor:
        ladder = replace(ladder, spikes=replace(ladder.spikes, factor=followed.state.factor))
    if followed.move in (Move.NEW_PHASE, Move.RETURN):
        trends = forget_levels(trends)
    return Memory(ladder, trends, followed.state)


def after_rollback(memory: Memory, then: Memory) -> Memory:
    """Memory after a rollback to the state of ``then``; the budgets already used stay used."""
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
    """Memory at the start of an announced phase: earlier levels no longer count."""
    spikes = SpikeState(factor=memory.probation.factor)
    return Memory(replace(memory.ladder, spikes=spikes), forget_levels(memory.trends), start_anew(memory.probation))


def _watched(decision: Decision) -> Decision:
    """The decision in monitor mode: the step is taken."""
    decision = replace(decision, fault=False)
    if decision.limit is not None:
        reason = decision.reason.replace("limited to", "would be limited to")
        return replace(decision, action=Action.ACCEPT, reason=f"{reason} (taken; {MONITORING}", limit=None)
    if not decision.refused:
        return decision
    # An fp16 scaler already skips steps with non-finite gradients.
    signals = decision.signals
    taken = "taken" if signals.loss_scale is None or not signals.bad_count else "left to the scaler"
    return replace(decision, action=Action.ACCEPT, reason=f"{decision.reason} ({taken}; {MONITORING}")


def _bounded(verdict: Verdict, limit: float, before: SpikeState) -> float | None:
    """Allowed multiple of the usual norm if the gradient was above it, else None."""
    if not verdict or Verdict.GRADIENT_SPIKE not in verdict or not before.norms:
        return None
    return math.exp(min(limit - spread(before.norms)[0], 700.0))
