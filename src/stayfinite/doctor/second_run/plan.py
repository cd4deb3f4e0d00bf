"""What the second run is told of the first, and what it answers."""

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
    """Where the bad step is, and what has to be the same until then."""

    backward: int
    """The bad step's last backward call, counted from 1."""
    step: int
    """Steps that were taken before the bad one."""
    trace_after: int
    """The tracer is on after so many steps of optimizers."""
    has_optimizer: bool
    """Whether an optimizer was there: without one, steps are counted by backward calls."""
    losses: array[float]
    """The loss of each backward call, up to the bad one."""
    generators: dict[str, Any]
    """As they stood when the program began."""

    def write(self, folder: Path) -> None:
        """Leave it for the second run."""
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        (folder / PLAN).write_bytes(pickle.dumps(kept))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """As it was written: by our own process, in a folder that only its user can write to."""
        return cls(**pickle.loads((folder / PLAN).read_bytes()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of the second run."""

    differs: tuple[int, float, float] | None = None
    """The first backward call with another loss, its loss in the first run and in the second."""
    finding: dict[str, Any] | None = None
    """The cause, if the bad values were there again: what ``told`` takes."""
    error: str = ""

    def write(self, folder: Path) -> None:
        """Leave it for the first run."""
        said = {"differs": self.differs, "finding": self.finding, "error": self.error}
        (folder / ANSWER).write_text(json.dumps(said), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Answer | None:
        """None where the second run has left nothing."""
        try:
            said = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        differs = said["differs"]
        return cls(differs=differs and tuple(differs), finding=said["finding"], error=said["error"])
