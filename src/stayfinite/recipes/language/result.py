"""Result of a language model training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stayfinite.recipes.running.best import Best
from stayfinite.recipes.running.curve import first_and_last, losses_of
from stayfinite.recipes.running.outcome import Outcome

NUMBERS = ("first_loss", "last_loss", "validation_loss", "accuracy", "seconds")
NONE = {"loss": float("nan"), "accuracy": float("nan")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """Result of a training."""

    validation_loss: float
    accuracy: float

    def __str__(self) -> str:
        return (
            f"loss {self.first_loss:.3f} -> {self.last_loss:.3f}, validation loss {self.validation_loss:.3f}. Saved "
            f"the best model to {self.directory / 'best'}. Try it: stayfinite generate {self.directory} --prompt "
            "'...'"
        )

    def to_json(self) -> dict[str, Any]:
        """By name, without the directory."""
        return {name: value for name, value in asdict(self).items() if name != "directory"}


def result_of(run: Path, *, steps: int, seconds: float, best: Best) -> Result:
    """The result of a finished run from its files, including earlier processes."""
    first, last = first_and_last(losses_of(run))
    top = min(best.history, key=lambda entry: entry["loss"], default=NONE)
    return Result(
        first_loss=first, last_loss=last, validation_loss=top["loss"], accuracy=top["accuracy"], steps=steps,
        seconds=seconds, directory=run,
    )  # fmt: skip


def recorded_result(record: Mapping[str, Any], run: Path) -> Result:
    """The result in ``result.json``."""
    numbers = {name: float("nan") if record.get(name) is None else float(record[name]) for name in NUMBERS}
    return Result(**numbers, steps=int(record["steps"]), directory=run)
