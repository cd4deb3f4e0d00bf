"""Keep the best model on disk; early stopping."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stayfinite.recipes.running.directories import mend, write_whole
from stayfinite.recipes.running.records import write_record

WORST = -1e30
"""Value of a non-finite score."""


class Best:
    """Keeps ``best/`` in a directory, replaced atomically.

    Arguments:
        output: directory of the run.
        metric: the deciding score; higher is better unless ``lowest``.
        patience: evaluations without improvement before stopping; 0 for never.
        lowest: lower is better, as for a loss.
    """

    def __init__(self, output: Path, *, metric: str, patience: int = 0, lowest: bool = False) -> None:
        self._output = output
        self._metric = metric
        self._sign = -1.0 if lowest else 1.0
        self.patience = patience
        self.history: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        """Whether patience ran out."""
        if not self.patience or not self.history:
            return False
        values = [entry["value"] for entry in self.history]
        return len(values) - 1 - values.index(max(values)) >= self.patience

    @property
    def scores(self) -> dict[str, Any]:
        """Scores of the best model; empty before the first evaluation."""
        return dict(max(self.history, key=lambda entry: float(entry["value"]), default={}))

    def judge(self, step: int, scores: Mapping[str, float], save: Callable[[Path], None] | None = None) -> bool:
        """Record an evaluation and save the model if it is the best. Returns whether it is.

        Arguments:
            step: a repeated step replaces its earlier entry.
            scores: by name.
            save: writes the model into a directory.
        """
        value = self._sign * float(scores[self._metric])
        value = value if math.isfinite(value) else WORST
        self.history = [entry for entry in self.history if entry["step"] != step]
        better = all(value > entry["value"] for entry in self.history)
        self.history.append({"step": step, "value": value, **scores})
        if better and save is not None:
            write_whole(self.directory, save)
        write_record(self._record, {"version": 1, "evaluations": self.history})
        return better

    def recall(self, step: int | None = None) -> None:
        """Restore the history up to ``step``; later evaluations will run again."""
        mend(self.directory)
        if self._record.exists():
            found = json.loads(self._record.read_text(encoding="utf-8"))["evaluations"]
            self.history = [entry for entry in found if step is None or entry["step"] <= step]

    def knows(self, step: int) -> bool:
        return any(entry["step"] == step for entry in self.history)

    @property
    def directory(self) -> Path:
        return self._output / "best"

    @property
    def _record(self) -> Path:
        return self._output / "evaluations.json"
