"""Which rung of the ladder comes next, once refusing steps alone has not helped.

Cut the learning rate for a while, then roll back to a known-good state and pass over the batches that led here, then
escalate precision, then stop. Within one spell of trouble no rung is taken twice, except escalation, which has further
to go each time; enough accepted steps end the spell. Rolling back to the same state and failing in the same way again
is not tried a second time in any spell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stayfinite.core.decision import Action
from stayfinite.core.policy import Policy

ORDER = (Action.CUT, Action.ROLLBACK, Action.ESCALATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What could be done at this moment."""

    cut: bool = False
    """The guard is in a position to cut the learning rate."""

    rollback_to: int | None = None
    """Step of the newest known-good snapshot, if there is one."""

    escalate_to: str | None = None
    """The next safer precision, if the guard manages precision and there is one."""

    rerun: bool = False
    """Batches can be run again, because the forward pass is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungState:
    """What has been tried."""

    cuts: int = 0
    rollbacks: int = 0
    escalations: int = 0
    highest: int = -1
    """Index in ``ORDER`` of the highest rung of this spell; -1 when nothing was tried in it."""
    calm: int = 0
    """Steps accepted since the last rung was taken."""
    last_rollback: tuple[int, str] | None = None
    """Where the last rollback went, and from what kind of trouble."""


def next_rung(trouble: str, state: RungState, policy: Policy, options: Options) -> Action:
    """The rung to take now; STOP when none is left.

    Arguments:
        trouble: the code of the veto that spent the budget.
        state: what has been tried.
        policy: the budgets.
        options: what could be done at this moment.
    """
    for index, action in enumerate(ORDER):
        beyond = index > state.highest or (action is Action.ESCALATE and index == state.highest)
        if beyond and _possible(action, trouble, state, policy, options):
            return action
    return Action.STOP


def take(action: Action, trouble: str, state: RungState, options: Options) -> RungState:
    """What has been tried, once this rung is taken too."""
    state = replace(state, highest=max(state.highest, ORDER.index(action)), calm=0)
    if action is Action.CUT:
        return replace(state, cuts=state.cuts + 1)
    if action is Action.ESCALATE:
        return replace(state, escalations=state.escalations + 1)
    assert options.rollback_to is not None
    return replace(state, rollbacks=state.rollbacks + 1, last_rollback=(options.rollback_to, trouble))


def breathe(state: RungState, policy: Policy) -> RungState:
    """A step was accepted; enough of them end the spell."""
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
