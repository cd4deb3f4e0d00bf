"""A training of a few steps on a few rows of the built-in set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from run_files import lines_of
from stayfinite.recipes.diffusion.toy import write_toy_set
from stayfinite.recipes.mmdit import Mmdit, Result, train

SMALL: dict[str, Any] = {
    "width": 16, "depth": 1, "heads": 2, "patch": 3, "batch_size": 8, "steps": 6, "eval_steps": 6, "eval_rows": 8,
    "sample_steps": 2, "learning_rate": 1e-3, "val_share": 0.2, "check": "off", "checkpoint_steps": 100,
    "device": "cpu",
}  # fmt: skip
RESUMABLE: dict[str, Any] = {"steps": 16, "eval_steps": 4, "checkpoint_steps": 3, "dropout": 0.1}
"""Settings of a training that is killed and of one that is not; 12 steps are an epoch."""


def write_data(directory: Path, rows: int = 120) -> Path:
    write_toy_set(directory, rows=rows)
    return directory


def run(data: Path, output: Path, said: list[str] | None = None, **more: Any) -> Result:
    lines: list[str] = [] if said is None else said
    result = train(Mmdit(**(SMALL | {"data": str(data), "output_dir": str(output)} | more)), lines.append)
    assert result is not None
    return result


def steps_of(output: Path) -> list[dict[str, Any]]:
    return lines_of(output / "steps.jsonl")


def events_of(output: Path) -> list[dict[str, Any]]:
    return lines_of(output / "events.jsonl")


def spoil(data: Path, row: int = 3, *, value: float = float("nan"), file: str = "scenes-001") -> None:
    path = data / "latents" / f"{file}.npy"
    latents = np.load(path)
    latents[row, :, 2, 2:4] = value
    np.save(path, latents)
