"""A training of a few steps on a few rows of the built-in set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from stayfinite.recipes.diffusion.toy import write_toy_set
from stayfinite.recipes.mmdit import Mmdit, Result, train

SMALL: dict[str, Any] = {
    "width": 16, "depth": 1, "heads": 2, "patch": 3, "batch_size": 8, "steps": 6, "eval_steps": 6, "eval_rows": 8,
    "sample_steps": 2, "learning_rate": 1e-3, "val_share": 0.2, "check": "off", "checkpoint_steps": 100,
    "device": "cpu",
}  # fmt: skip


def write_data(directory: Path, rows: int = 120) -> Path:
    write_toy_set(directory, rows=rows)
    return directory


def run(data: Path, output: Path, said: list[str] | None = None, **more: Any) -> Result:
    lines: list[str] = [] if said is None else said
    result = train(Mmdit(**(SMALL | {"data": str(data), "output_dir": str(output)} | more)), lines.append)
    assert result is not None
    return result


def steps_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "steps.jsonl").read_text().splitlines()]


def events_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]


def weights_of(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "best" / "model.safetensors")


def spoil(data: Path, row: int = 3, *, value: float = float("nan"), file: str = "scenes-001") -> None:
    path = data / "latents" / f"{file}.npy"
    latents = np.load(path)
    latents[row, :, 2, 2:4] = value
    np.save(path, latents)
