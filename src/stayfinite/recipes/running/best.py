"""The best model so far, on disk, and when to stop looking for a better one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stayfinite.recipes.running.whole import mend, write_whole

WORST = -1e30
"""What a score that is not finite counts for."""


class Best:
    """Keeps ``best/`` in a directory: written aside, then renamed, so that there is always a whole one.

    Arguments:
        output: the directory of the run.
        metric: the name of the score that decides; the higher, the better, unless ``lowest`` is on.
        patience: evaluations without a better one until it is over; 0 for never.
        lowest: the lowest score is the best, as of a loss.
    """

    def __init__(self, output: Path, *, metric: str, patience: int = 0, lowest: bool = False) -> None:
        self._output = output
        self._metric = metric
        self._sign = -1.0 if lowest else 1.0
        self._patience = patience
        self.history: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        """Whether it was in vain for too long."""
        if not self._patience or not self.history:
            return False
        values = [entry["value"] for entry in self.history]
        return len(values) - 1 - values.index(max(values)) >= self._patience

    @property
    def scores(self) -> dict[str, Any]:
        """Those of the best model; none before the first evaluation."""
        return dict(max(self.history, key=lambda entry: float(entry["value"]), default={}))

    def judge(self, step: int, scores: Mapping[str, float], save: Callable[[Path], None] | None = None) -> bool:
        """Take note of an evaluation, and keep the model if there was no better one. Says whether it is the best.

        Arguments:
            step: after which it was made; an evaluation that is made again takes the place of the first.
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
        aside = self._record.with_name(self._record.name + ".new")
        aside.write_text(json.dumps({"version": 1, "evaluations": self.history}, indent=1), encoding="utf-8")
        aside.replace(self._record)
        return better

    def recall(self, step: int | None = None) -> None:
        """Go on from what an earlier process wrote; what it saw after ``step`` will be seen again."""
        mend(self.directory)
        if self._record.exists():
            found = json.loads(self._record.read_text(encoding="utf-8"))["evaluations"]
            self.history = [entry for entry in found if step is None or entry["step"] <= step]

    def knows(self, step: int) -> bool:
        """Whether there was an evaluation after this step."""
        return any(entry["step"] == step for entry in self.history)

    @property
    def directory(self) -> Path:
        """Where the best model is."""
        return self._output / "best"

    @property
    def _record(self) -> Path:
        return self._output / "evaluations.json"
