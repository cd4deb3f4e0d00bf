"""Signs of post-training gone wrong, judged as the steps become known; no step is refused for one."""

from __future__ import annotations

from stayfinite.core.post_training.watch import PostTraining
from stayfinite.core.signals import Signals
from stayfinite.guard.telling.recorder import SIGN, Recorder


class PostTrainingWatch:
    """Judges the signals that came with a step, and tells; does nothing where a loop gives none.

    Arguments:
        recorder: is told.
        first: whether this is the rank that speaks; the others do not look.
    """

    def __init__(self, recorder: Recorder, *, first: bool) -> None:
        self._recorder, self._on = recorder, first
        self._judge = PostTraining()

    @property
    def standing(self) -> frozenset[str]:
        """Causes that the last signals show; on the rank that looks."""
        return self._judge.standing

    def take(self, signals: Signals) -> None:
        """A step has become known."""
        if not self._on or not signals.named:
            return
        for sign in self._judge.take(signals.step, signals.named):
            self._recorder.announce(
                SIGN,
                sign.step,
                f"step {sign.step}: {sign.cause}: {sign.text}. Training continues.\n  Fix: {sign.advice}",
                cause=sign.cause,
                reason=sign.text,
                signal=sign.signal,
                value=sign.value,
                usual=sign.usual,
                variant=sign.variant,
                fix=sign.advice,
            )
