"""Input and output of the second run."""

from __future__ import annotations

import json
import pickle
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLAN, ANSWER = "plan.pickle", "answer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the bad step is, and what must match until then."""

    backward: int
    """The bad step's last backward call, counted from 1."""
    step: int
    """Steps before the bad one."""
    trace_after: int
    """Optimizer steps after which to start tracing."""
    has_optimizer: bool
    """Without an optimizer, steps are counted by backward calls."""
    losses: array[float]
    """Loss of each backward call, up to the bad one."""
    generators: dict[str, Any]
    """Generator states at program start."""

    def write(self, folder: Path) -> None:
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        (folder / PLAN).write_bytes(pickle.dumps(kept))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Read the plan, written by our own process to a private folder."""
        return cls(**pickle.loads((folder / PLAN).read_bytes()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of the second run."""

    differs: tuple[int, float, float] | None = None
    """First backward call with a different loss: index, loss in the first run, loss in the second."""
    finding: dict[str, Any] | None = None
    """Arguments for ``told``, if the bad values occurred again."""
    error: str = ""

    def write(self, folder: Path) -> None:
        """Write the answer for the first run."""
        said = {"differs": self.differs, "finding": self.finding, "error": self.error}
        (folder / ANSWER).write_text(json.dumps(said), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Answer | None:
        """The answer, or None if there is none."""
        try:
            said = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        differs = said["differs"]
        return cls(differs=differs and tuple(differs), finding=said["finding"], error=said["error"])
