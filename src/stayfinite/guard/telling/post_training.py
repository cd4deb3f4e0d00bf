"""Signs of post-training gone wrong, judged as the steps become known; no step is refused for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.core.post_training.signs import Sign
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
        self.steered: dict[str, Any] = {}
        """What was done about the signs, as plain data; whoever steers keeps it here, so that it is saved."""

    @property
    def standing(self) -> frozenset[str]:
        """Causes that the last signals show; on the rank that looks."""
        return self._judge.standing

    def state_dict(self) -> dict[str, Any]:
        """Signals so far, in bounded size, and what was done about them."""
        return {"judge": self._judge.to_json(), "steered": dict(self.steered)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there. A state from before this was saved is empty, and the judge begins anew.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is something else.
        """
        self._judge.load(state.get("judge", {}))
        # In place: whoever steers holds it already.
        self.steered.clear()
        self.steered.update(state.get("steered", {}))

    def take(self, signals: Signals) -> None:
        """A step has become known."""
        if not self._on or not signals.named:
            return
        for sign in self._judge.take(signals.step, signals.named):
            self.tell(sign)

    def tell(self, sign: Sign) -> None:
        """Tell of a sign, found here or by whoever looked at the training itself."""
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
