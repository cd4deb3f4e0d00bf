"""Usable pairs of a table, with a report on the others."""

from __future__ import annotations

from collections.abc import Callable

from stayfinite.errors import UsageError
from stayfinite.recipes.images.decoding import find_unreadable, without
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
