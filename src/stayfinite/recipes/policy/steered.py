"""Correct a reinforcement learning run when its signals show trouble."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stayfinite.rl import Rung, Steering

PATIENCE = 5
"""Steps to wait between two measures; much longer and no good snapshot is left."""

WORDS = {
    Rung.KL: "raised the KL coefficient to {kl:g}",
    Rung.RATE: "cut the learning rate",
    Rung.ROLL_BACK: "rolled back to known-good weights",
}


class Steered:
    """Checks the signals between two samplings and acts, if enabled.

    Arguments:
        guard: of the training.
        config: settings of the recipe.
        say: receives what was done.
    """

    def __init__(self, guard: Any, config: Any, say: Callable[[str], None]) -> None:
        self._kl, self._say = config.kl, say
        self._steering = (
            Steering(guard, kl=config.kl, patience=max(1, PATIENCE // config.updates)) if config.steer else None
        )

    @property
    def kl(self) -> float:
        return self._kl if self._steering is None else self._steering.kl

    def follow(self) -> None:
        """Call before sampling, so that answers never predate a rollback."""
        rung = Rung.NOTHING if self._steering is None else self._steering.follow()
        if rung:
            self._say(f"steering: {WORDS[rung].format(kl=self.kl)}")
