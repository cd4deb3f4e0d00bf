"""A trained language model on disk, and the result of its training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stayfinite.readers.runs.reader import read_object
from stayfinite.recipes.running.best import Best
from stayfinite.recipes.running.quiet import quiet_transformers
from stayfinite.recipes.running.records import Outcome

DESCRIPTION = "language.json"


def save_trained(model: Any, tokenizer: Any, description: Mapping[str, Any], into: Path) -> None:
    """Save a model for transformers and ``stayfinite generate``. Only the adapters, if it has any."""
    into.mkdir(parents=True, exist_ok=True)
    with quiet_transformers():
        model.save_pretrained(into)
        tokenizer.save_pretrained(into)
    (into / DESCRIPTION).write_text(json.dumps({"version": 1, **description}, indent=1), encoding="utf-8")


def read_description(directory: Path) -> dict[str, Any]:
    """The description of a model; empty if missing."""
    return read_object(directory / DESCRIPTION) or {}


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


def result_of(numbers: Mapping[str, Any], best: Best) -> Result:
    """The result of a finished run: the numbers of its loop, and the best evaluation."""
    top = min(best.history, key=lambda entry: entry["loss"], default=NONE)
    return Result(**numbers, validation_loss=top["loss"], accuracy=top["accuracy"])


def recorded_result(record: Mapping[str, Any], run: Path) -> Result:
    """The result in ``result.json``."""
    numbers = {name: float("nan") if record.get(name) is None else float(record[name]) for name in NUMBERS}
    return Result(**numbers, steps=int(record["steps"]), directory=run)
