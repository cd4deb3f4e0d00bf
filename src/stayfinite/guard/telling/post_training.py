"""Post-training failures, judged as steps are decided; no step is refused for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.core.post_training.signs import Sign
from stayfinite.core.post_training.watch import PostTraining
from stayfinite.core.signals import Signals
from stayfinite.guard.telling.recorder import SIGN, Recorder


class PostTrainingWatch:
    """Judges the signals of each step and reports signs; does nothing without signals.

    Arguments:
        first: whether this is rank 0; other ranks do nothing.
    """

    def __init__(self, recorder: Recorder, *, first: bool) -> None:
        self._recorder, self._on = recorder, first
        self._judge = PostTraining()
        self.steered: dict[str, Any] = {}
        """Actions taken on signs, as plain data; kept here by `rl.Steering` so they are saved."""

    @property
    def standing(self) -> frozenset[str]:
        """Causes shown by the last signals, on rank 0."""
        return self._judge.standing

    def state_dict(self) -> dict[str, Any]:
        """Signals so far, in bounded size, and the actions taken."""
        return {"judge": self._judge.to_json(), "steered": dict(self.steered)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; an older, empty one starts over.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: not such a state.
        """
        self._judge.load(state.get("judge", {}))
        # In place: the steering keeps a reference.
        self.steered.clear()
        self.steered.update(state.get("steered", {}))

    def take(self, signals: Signals) -> None:
        """Judge the signals of a decided step."""
        if not self._on or not signals.named:
            return
        for sign in self._judge.take(signals.step, signals.named):
            self.tell(sign)

    def tell(self, sign: Sign) -> None:
        """Report a sign, found here or by the caller."""
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
