"""The best model so far, on disk, and when to stop looking for a better one."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stayfinite.recipes.seq2seq.scores import Scores


class Best:
    """Keeps ``best/`` in a directory: written aside, then renamed, so that there is always a whole one."""

    def __init__(self, output: Path, *, metric: str, patience: int) -> None:
        self._output = output
        self._metric = metric
        self._patience = patience
        self.history: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        """Whether it was in vain for too long."""
        if not self._patience or not self.history:
            return False
        values = [entry["value"] for entry in self.history]
        return len(values) - 1 - values.index(max(values)) >= self._patience

    def judge(
        self, epoch: int, scores: Scores, save: Callable[[Path], None], say: Callable[[str], None]
    ) -> None:
        """Take note of an evaluation, and keep the model if there was no better one."""
        value = float(getattr(scores, self._metric))
        value = value if math.isfinite(value) else -math.inf
        better = all(value > entry["value"] for entry in self.history if entry["epoch"] != epoch)
        self.history = [entry for entry in self.history if entry["epoch"] != epoch]
        self.history.append({"epoch": epoch, "value": value, **asdict(scores)})
        say(f"epoch {epoch}: {scores}{'  (best so far)' if better else ''}")
        if better:
            self._keep(save)
        self._record.write_text(json.dumps({"version": 1, "evaluations": self.history}, indent=1), encoding="utf-8")

    def recall(self) -> None:
        """Go on from what an earlier process wrote."""
        if self._record.exists():
            self.history = json.loads(self._record.read_text(encoding="utf-8"))["evaluations"]

    def load_into(self, model: Any) -> None:
        """Give the model the best weights."""
        from safetensors.torch import load_file

        path = self._output / "best" / "model.safetensors"
        if path.exists():
            model.load_state_dict(load_file(path), strict=False)

    @property
    def _record(self) -> Path:
        return self._output / "evaluations.json"

    def _keep(self, save: Callable[[Path], None]) -> None:
        aside, kept, old = (self._output / name for name in ("best.new", "best", "best.old"))
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        save(aside)
        shutil.rmtree(old, ignore_errors=True)
        if kept.exists():
            kept.rename(old)
        aside.rename(kept)
        shutil.rmtree(old, ignore_errors=True)
