"""Choose the next rung of the ladder when vetoes alone do not help.

Cut the learning rate for a while; then roll back to a known-good state and skip the batches that led here; then
escalate precision; then stop. In one spell of trouble each rung is taken once, except escalation, which has several
stages; enough accepted steps end the spell. A rollback to the same state for the same trouble is never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stayfinite.core.decision import Action
from stayfinite.core.policy import Policy

ORDER = (Action.CUT, Action.ROLLBACK, Action.ESCALATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Actions available now."""

    cut: bool = False
    """The guard can cut the learning rate."""

    rollback_to: int | None = None
    """Step of the newest known-good snapshot, or None."""

    escalate_to: str | None = None
    """Next safer precision, if the guard manages precision and there is one."""

    rerun: bool = False
    """Batches can be run again because the forward pass is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungState:
    """Rungs taken so far."""

    cuts: int = 0
    rollbacks: int = 0
    escalations: int = 0
    highest: int = -1
    """Index in ``ORDER`` of the highest rung in this spell; -1 for none."""
    calm: int = 0
    """Steps accepted since the last rung."""
    last_rollback: tuple[int, str] | None = None
    """Step that the last rollback went to, and the trouble that caused it."""


def next_rung(trouble: str, state: RungState, policy: Policy, options: Options) -> Action:
    """Return the rung to take now; STOP if none is left."""
    for index, action in enumerate(ORDER):
        beyond = index > state.highest or (action is Action.ESCALATE and index == state.highest)
        if beyond and _possible(action, trouble, state, policy, options):
            return action
    return Action.STOP


def take(action: Action, trouble: str, state: RungState, options: Options) -> RungState:
    """State after this rung is taken."""
    state = replace(state, highest=max(state.highest, ORDER.index(action)), calm=0)
    if action is Action.CUT:
        return replace(state, cuts=state.cuts + 1)
    if action is Action.ESCALATE:
        return replace(state, escalations=state.escalations + 1)
    assert options.rollback_to is not None
    return replace(state, rollbacks=state.rollbacks + 1, last_rollback=(options.rollback_to, trouble))


def breathe(state: RungState, policy: Policy) -> RungState:
    """Count an accepted step; enough of them end the spell."""
    if state.highest < 0:
        return state
    calm = state.calm + 1
    return replace(state, calm=calm, highest=-1 if calm >= policy.calm_steps else state.highest)


def _possible(action: Action, trouble: str, state: RungState, policy: Policy, options: Options) -> bool:
    if action is Action.CUT:
        return options.cut and state.cuts < policy.max_cuts
    if action is Action.ESCALATE:
        return options.escalate_to is not None and state.escalations < policy.max_escalations
    again = state.last_rollback == (options.rollback_to, trouble)
    return options.rollback_to is not None and state.rollbacks < policy.max_rollbacks and not again
