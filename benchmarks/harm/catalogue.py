"""All trainings, registered by importing the modules that hold them."""

from __future__ import annotations

from benchmarks.harm import games, harmful, kinds, phases, rare
from benchmarks.harm.trainings import HARMFUL, HEALTHY, Training

__all__ = ["HARMFUL", "HEALTHY", "find", "games", "harmful", "kinds", "phases", "rare"]


def find(name: str) -> Training:
    """A training by its name."""
    return next(training for training in (*HEALTHY, *HARMFUL) if training.name == name)
