"""Load the pairs of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.images.built_in import draw_pairs
from stayfinite.recipes.images.decoding import find_unreadable, without
from stayfinite.recipes.images.folds import Split, apart_from, split
from stayfinite.recipes.images.pairs import Pair, read_pairs, sort_out

SHOWN = 5
"""Unreadable images listed."""


def usable_pairs(
    table: str,
    say: Callable[[str], None],
    *,
    image_dir: str | None = None,
    margin: float = 0.0,
    look_at: int = 5000,
    drop: bool = False,
) -> list[Pair]:
    """Read a table, check its images, report what was found.

    Arguments:
        image_dir, margin: as in `read_pairs`.
        look_at: images to decode at most.
        drop: skip pairs with unreadable images instead of stopping.

    Raises:
        UsageError: the table is unusable, or an image is unreadable and ``drop`` is off.
    """
    found = sort_out(read_pairs(table, image_dir=image_dir, margin=margin, say=say))
    say(f"{table}: {found}")
    if found.against_scores > 0.05:
        say(f"check: warning: {found.against_scores:.0%} of the labels in {table} contradict their scores")
    wrong, looked, there = find_unreadable(found.pairs, look_at)
    if wrong and not drop:
        raise UsageError(
            f"cannot read {len(wrong):,} of {looked:,} images of {table}: {'; '.join(list(wrong.values())[:SHOWN])}",
            fix="replace them, or --bad-images drop to skip their pairs",
        )
    kept = without(found.pairs, wrong)
    if wrong:
        for message in list(wrong.values())[:SHOWN]:
            say(f"check: {message}")
        say(f"dropped {len(found.pairs) - len(kept):,} pairs with {len(wrong):,} unreadable images")
    if looked < there:
        say(f"checked {looked:,} of {there:,} images")
    if not kept:
        raise UsageError(f"no usable pairs left in {table}", fix="fix the images or labels")
    return kept


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
