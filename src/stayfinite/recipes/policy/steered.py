"""The ladder of a reinforcement learning: what is done when its signals show that it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stayfinite.rl import Rung, Steering

PATIENCE = 5
"""Steps that a rung is given before the next is taken: a policy that is lost for 20 has no good snapshot any more."""

WORDS = {
    Rung.KL: "raised the KL coefficient to {kl:g}",
    Rung.RATE: "cut the learning rate",
    Rung.ROLL_BACK: "rolled back to known-good weights",
}


class Steered:
    """Looks at the signs between two samplings, and acts; holds still where it is switched off.

    Arguments:
        guard: of the training.
        config: settings of the reinforcement learning.
        say: is told what was done.
    """

    def __init__(self, guard: Any, config: Any, say: Callable[[str], None]) -> None:
        self._kl, self._say = config.kl, say
        self._steering = (
            Steering(guard, kl=config.kl, patience=max(1, PATIENCE // config.updates)) if config.steer else None
        )

    @property
    def kl(self) -> float:
        """Weight of the distance to the start, now."""
        return self._kl if self._steering is None else self._steering.kl

    def follow(self) -> None:
        """Call it before a sampling: answers that were sampled before a rollback are not those of the weights after."""
        rung = Rung.NOTHING if self._steering is None else self._steering.follow()
        if rung:
            self._say(f"steering: {WORDS[rung].format(kl=self.kl)}")
