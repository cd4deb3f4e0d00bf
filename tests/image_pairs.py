"""Small drawn pairs, and settings of a training on them that takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stayfinite.recipes.compare import Compare
from stayfinite.recipes.images.data import draw_pairs


def small_table(directory: Path, *, images: int = 40, pairs: int = 30) -> Path:
    return draw_pairs(directory, task="size", seed=0, images=images, pairs=pairs, side=16)


def small_settings(directory: Path, **changed: Any) -> Compare:
    """24 training pairs in 6 batches, 6 held out."""
    table = changed.pop("train", None) or str(small_table(directory / "data"))
    plain = {
        "output_dir": str(directory / "run"), "image_size": 16, "batch_size": 4, "epochs": 1, "check": "off",
        "learning_rate": 1e-3, "projector_learning_rate": 5e-4, "device": "cpu",
    }  # fmt: skip
    return Compare(train=table, **(plain | changed))
