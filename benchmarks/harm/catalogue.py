"""All trainings, registered by importing the modules that hold them."""

from __future__ import annotations

from benchmarks.harm import games, harmful, kinds, phases, rare
from benchmarks.harm.trainings import HARMFUL, HEALTHY

__all__ = ["HARMFUL", "HEALTHY", "games", "harmful", "kinds", "phases", "rare"]
