"""Result common to all recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Numbers all recipes have; each result adds its scores."""

    first_loss: float
    last_loss: float
    steps: int
    seconds: float
    directory: Path

    def numbers(self) -> dict[str, Any]:
        """For result.json."""
        return {
            "steps": self.steps, "seconds": round(self.seconds, 1), "first_loss": self.first_loss,
            "last_loss": self.last_loss,
        }  # fmt: skip
