"""Losses of a run from steps.jsonl, including earlier processes."""

from __future__ import annotations

import json
import math
from pathlib import Path

from stayfinite.errors import TrainingDiverged


def losses_of(directory: Path) -> list[float]:
    """Finite losses by step; of a repeated step, the later one."""
    found: dict[int, float] = {}
    try:
        lines = (directory / "steps.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            record = json.loads(line)
            step, loss = int(record["step"]), float(record["loss"])
        except (ValueError, KeyError, TypeError):
            continue  # a line truncated by a kill, or a step without a loss
        if math.isfinite(loss):
            found[step] = loss
    return [found[step] for step in sorted(found)]


def first_and_last(losses: list[float], window: int = 10) -> tuple[float, float]:
    """The first loss and the mean of the last few; NaN if there are none."""
    if not losses:
        return math.nan, math.nan
    tail = losses[-window:]
    return losses[0], sum(tail) / len(tail)


def require_one_finite(directory: Path, steps: int) -> None:
    """Raise TrainingDiverged if no step had a finite loss, so that nothing was trained."""
    if not losses_of(directory):
        raise TrainingDiverged(
            f"all {steps} steps had a NaN or inf loss: nothing was trained",
            step=steps,
            code="loss-not-finite",
            fix=f"see {directory / 'incidents'} for the cause; --check stop finds most causes before step 1",
        )
