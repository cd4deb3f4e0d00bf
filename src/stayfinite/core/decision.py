"""A decision of the guard on one step, and its reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stayfinite.core.signals import Signals


class Action(StrEnum):
    """The rungs of the ladder, mildest first. Members compare equal to their plain strings."""

    ACCEPT = "accept"
    CLIP = "clip"
    BOUND = "bound"
    VETO = "veto"
    CUT = "cut"
    ROLLBACK = "rollback"
    ESCALATE = "escalate"
    STOP = "stop"


class Code(StrEnum):
    """Reason of a decision."""

    FINITE = "finite"
    LARGE_GRADIENT = "large-gradient"
    UNUSUAL_LOSS = "unusual-loss"
    UNUSUAL_GRADIENT = "unusual-gradient"
    NEW_LEVEL = "new-level"
    LOSS_NOT_FINITE = "loss-not-finite"
    GRADIENT_NOT_FINITE = "gradient-not-finite"
    LOSS_SPIKE = "loss-spike"
    GRADIENT_SPIKE = "gradient-spike"
    SCALE_SEARCH = "scale-search"
    REPLAY_MISMATCH = "replay-mismatch"
    VETOES_IN_A_ROW = "vetoes-in-a-row"
    VETOES_IN_TOTAL = "vetoes-in-total"
    LEVEL_IN_DOUBT = "level-in-doubt"
    STRICT = "strict"


REFUSING = frozenset(Action) - {Action.ACCEPT, Action.CLIP, Action.BOUND}
ORDINARY = frozenset({Code.FINITE, Code.LARGE_GRADIENT, Code.UNUSUAL_LOSS})

MONITORING = "monitoring only)"
"""End of the reason of a bad or unusual step that was only monitored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision on one step.

    Examples:
        >>> guard.step(model(batch).mean() * float("nan"))
        >>> last = guard.decisions[-1]
        >>> last.refused, last.code
        (True, <Code.LOSS_NOT_FINITE: 'loss-not-finite'>)
    """

    action: Action
    """What was done."""

    code: Code
    """Why, as a fixed word for programs."""

    reason: str
    """Why, as a sentence for people."""

    signals: Signals
    """The numbers the decision is based on."""

    limit: float | None = None
    """Norm that an unusual gradient was limited to; None if it was not limited."""

    why: Code | None = None
    """Why the step itself was refused, if ``code`` names the budget that it used up."""

    fault: bool = False
    """Whether the step was taken although its loss is implausible for any data; running statistics exclude it."""

    @property
    def step(self) -> int:
        """Number of the step."""
        return self.signals.step

    @property
    def refused(self) -> bool:
        """Whether the step did not reach the weights."""
        return self.action in REFUSING

    @property
    def notable(self) -> bool:
        """Whether to report it to a person (plain clipping is routine)."""
        return self.code not in ORDINARY
