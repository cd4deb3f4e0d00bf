"""What the guard did with a step, and why."""

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
    """Why a decision was taken."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of one step.

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
    """The numbers it was taken on."""

    limit: float | None = None
    """The norm that the gradients were limited to because the step was unusual; None where they were not."""

    fault: bool = False
    """Whether the step was taken though no data could explain its loss; running statistics do not take it in."""

    @property
    def step(self) -> int:
        """Number of the step that was decided on."""
        return self.signals.step

    @property
    def refused(self) -> bool:
        """Whether the step was kept from the weights."""
        return self.action in REFUSING

    @property
    def notable(self) -> bool:
        """Whether a person would want to hear of it (clipping alone is everyday business)."""
        return self.code not in ORDINARY
