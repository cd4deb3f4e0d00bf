"""What every training comes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The numbers that all programs have; the result of each adds its scores."""

    first_loss: float
    last_loss: float
    steps: int
    seconds: float
    directory: Path

    def numbers(self) -> dict[str, Any]:
        """For result.json; where it lies goes without saying."""
        return {
            "steps": self.steps, "seconds": round(self.seconds, 1), "first_loss": self.first_loss,
            "last_loss": self.last_loss,
        }  # fmt: skip
