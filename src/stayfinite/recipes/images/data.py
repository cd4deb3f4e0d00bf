"""Load the pairs of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stayfinite.recipes.images.built_in import draw_pairs
from stayfinite.recipes.images.folds import Split, apart_from, split
from stayfinite.recipes.images.pairs import Pair
from stayfinite.recipes.images.tables import usable_pairs


def table_for(config: Any, output: Path) -> str:
    """The table of a run's pairs; the built-in task is drawn into the run."""
    if config.train is not None:
        return str(config.train)
    return str(draw_pairs(output / "data", task=config.built_in, seed=config.seed))


def pairs_for(config: Any, table: str, say: Callable[[str], None]) -> Split:
    """Training and held-out pairs. Raises UsageError for an unusable table or image, or no pairs on one side."""

    def pairs_of(path: str) -> list[Pair]:
        return usable_pairs(
            path, say, image_dir=config.image_dir, margin=config.margin, look_at=config.look_at_images,
            drop=config.bad_images == "drop",
        )  # fmt: skip

    pairs = pairs_of(table)
    if config.val is not None:
        made = apart_from(pairs, pairs_of(config.val))
    else:
        made = split(pairs, folds=config.folds, fold=config.fold, apart=config.apart)
    say(f"data: {made}")
    return made
