"""Result of the demo."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stayfinite.demo.why import FP16_MAX, Overflow


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneResult:
    """Result of one lane. Everything except `logged_loss` is measured in fp32 on held-out pairs."""

    name: str
    what: str
    logged_loss: str
    """Last loss in its log."""
    held_out_loss: float
    exact: float
    """Share of held-out phrases translated exactly."""
    exact_items: float
    """The same for held-out phrases that start with the bullet."""
    steps: int
    refused: int
    non_finite_weights: float
    """Share of weights that are NaN or infinite."""
    seconds: float
    """CPU time of the training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoResult:
    """The three lanes, why the guard refused, and where everything was written."""

    seed: int
    steps: int
    seconds: float
    """Wall-clock time."""
    lanes: tuple[LaneResult, ...]
    overflow: Overflow | None
    refused_with_character: int
    """Refused batches that contain the characters at which the overflow was found."""
    accepted_with_character: int
    out: Path

    def lane(self, name: str) -> LaneResult:
        return next(lane for lane in self.lanes if lane.name == name)

    def why(self) -> str:
        """One sentence, from the re-run of the first refused batch."""
        guarded = self.lane("guarded")
        refused = f"refused {guarded.refused} of {guarded.steps} steps"
        if self.overflow is None:
            return f"{refused}." if guarded.refused else "refused no step."
        found = self.overflow
        rows = f"row{'s' * (len(found.rows) > 1)} {_listed([str(row) for row in found.rows])}"
        marks = f", at {_listed([repr(mark) for mark in found.characters])}" if found.characters else ""
        sentence = (
            f"{refused}. Step {found.step} re-run: {found.module} reaches {found.peak:,.0f} in {rows} of the "
            f"batch{marks} (fp16 limit {FP16_MAX:,.0f}). The same batch in fp32 is finite, loss "
            f"{found.fp32_loss:.2f}."
        )
        if not found.characters:
            return sentence
        return (
            f"{sentence} {self.refused_with_character} of {guarded.refused} refused batches contain it, and "
            f"{self.accepted_with_character} of {guarded.steps - guarded.refused} accepted ones."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; non-finite numbers are None."""
        plain: dict[str, Any] = _strict({"version": 1, **asdict(self), "out": str(self.out), "why": self.why()})
        return plain


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
