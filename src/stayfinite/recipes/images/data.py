"""The pairs of a run: read, their images decoded, split into training and validation.

A pair and its swap are never separated. An unreadable image is an error, never a black image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.tar_rows import member_bytes, tar_of
from stayfinite.recipes.images.built_in import draw_pairs
from stayfinite.recipes.images.pairs import SIMILAR, Pair, read_pairs, sort_out

SHOWN = 5
"""Unreadable images listed."""


def _usable_pairs(config: Any, table: str, say: Callable[[str], None]) -> list[Pair]:
    """Read a table, check its images, report what was found.

    Raises:
        UsageError: the table is unusable, or an image is unreadable and its pairs may not be dropped.
    """
    found = sort_out(read_pairs(table, image_dir=config.image_dir, margin=config.margin, say=say))
    say(f"{table}: {found}")
    if found.against_scores > 0.05:
        say(f"check: warning: {found.against_scores:.0%} of the labels in {table} contradict their scores")
    wrong, looked, there = find_unreadable(found.pairs, config.look_at_images)
    if wrong and config.bad_images != "drop":
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
    pairs = _usable_pairs(config, table, say)
    if config.val is not None:
        made = apart_from(pairs, _usable_pairs(config, config.val, say))
    else:
        made = split(pairs, folds=config.folds, fold=config.fold, apart=config.apart)
    say(f"data: {made}")
    return made


Apart = Literal["pairs", "images"]
"""What must not be on both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Training and held-out pairs."""

    training: list[Pair]
    validation: list[Pair]
    left_out: int = 0
    """Pairs dropped because their images would be on both sides."""

    @property
    def shared_images(self) -> int:
        """Held-out images that also occur in training pairs."""
        return len(_images(self.training) & _images(self.validation))

    def __str__(self) -> str:
        text = f"{len(self.training):,} for training, {len(self.validation):,} held out"
        if self.left_out:
            text += f", {self.left_out:,} dropped to keep images apart"
        shared, images = self.shared_images, len(_images(self.validation))
        known = f"{shared:,} of {images:,} held-out images are also in training pairs"
        return f"{text}; {known if shared else 'no held-out image is in the training data'}"


def split(pairs: Sequence[Pair], *, folds: int, fold: int, apart: Apart = "pairs") -> Split:
    """Hold out one fold: by the column `fold` if present, else by a hash of the names.

    Arguments:
        pairs: without duplicates in either order.
        apart: `pairs` keeps a pair and its swap together; `images` also keeps every image on one side.

    Raises:
        UsageError: no such fold, or no pairs on one side.
    """
    given = [pair for pair in pairs if pair.fold is not None]
    if given and len(given) < len(pairs):
        bare = next(pair for pair in pairs if pair.fold is None)
        raise UsageError(
            f"{bare.where}: the fold is empty, but other rows have one", fix="give every row a fold, or none"
        )
    numbers = sorted({pair.fold for pair in pairs if pair.fold is not None}) if given else list(range(folds))
    refuse_missing_fold(fold, numbers)
    if apart == "images" and not given:
        made = _by_image(pairs, folds, fold)
    else:
        held = {pair.key for pair in given if pair.fold == fold} if given else _dealt(pairs, folds, fold)
        made = Split(
            training=[pair for pair in pairs if pair.key not in held],
            validation=[pair for pair in pairs if pair.key in held],
        )
    for side, name in ((made.training, "training"), (made.validation, "validation")):
        if not side:
            raise UsageError(
                f"no pairs left for {name}: {len(pairs):,} pairs in {len(numbers)} folds, fold {fold} held out",
                fix="more pairs, fewer folds, or --apart pairs",
            )
    return made


def refuse_missing_fold(fold: int, numbers: Sequence[int]) -> None:
    """Raise UsageError if this fold is not one of several."""
    if len(numbers) < 2:
        raise UsageError(f"--folds {len(numbers)}: at least two are needed", fix="--folds 5")
    if fold not in numbers:
        raise UsageError(f"--fold {fold}: expected {numbers[0]} to {numbers[-1]}", fix=f"--fold {numbers[0]}")


def apart_from(training: Sequence[Pair], validation: Sequence[Pair]) -> Split:
    """Split given as two files. Validation pairs are removed from training, in either order."""
    held = {pair.key for pair in validation}
    kept = [pair for pair in training if pair.key not in held]
    if not kept:
        raise UsageError("every training pair is also a validation pair", fix="name two different files")
    return Split(training=kept, validation=list(validation), left_out=len(training) - len(kept))


def _dealt(pairs: Sequence[Pair], folds: int, fold: int) -> set[tuple[str, str]]:
    """Keys of a fold, dealt in hash order, with `Similar` dealt last to balance the folds."""
    ordered = sorted(pairs, key=lambda pair: (pair.label == SIMILAR, _number("\0".join(pair.key))))
    return {pair.key for pair in ordered[fold::folds]}


def _by_image(pairs: Sequence[Pair], folds: int, fold: int) -> Split:
    held = set(sorted(_images(pairs), key=_number)[fold::folds])
    inside = [(pair.first in held) + (pair.second in held) for pair in pairs]
    return Split(
        training=[pair for pair, count in zip(pairs, inside, strict=True) if count == 0],
        validation=[pair for pair, count in zip(pairs, inside, strict=True) if count == 2],
        left_out=inside.count(1),
    )


def _images(pairs: Iterable[Pair]) -> set[str]:
    return {name for pair in pairs for name in (pair.first, pair.second)}


def _number(name: str) -> bytes:
    return hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()


def decode(path: str) -> Any:
    """The image as 8-bit RGB, rotated by its EXIF data.

    Raises:
        UsageError: unreadable, truncated, or more than 16 bits per channel.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtra.of("pillow", extra="recipes", what_for="reading images") from None
    try:
        with Image.open(path if tar_of(path) is None else BytesIO(member_bytes(path))) as opened:
            opened.load()
            image = ImageOps.exif_transpose(opened)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        # One line, since the guard quotes it for a batch that fails to load, even from a worker.
        words = str(error).replace(path, "").strip(" :'\"") or type(error).__name__
        raise UsageError(f"cannot read image {path}: {words}") from error
    if image.mode.startswith("I;16"):
        # Pillow would clip above 255 and turn a 16-bit image white.
        image = image.point(lambda value: value / 256).convert("L")
    elif image.mode in ("I", "F"):
        raise UsageError(f"{path}: 32-bit pixels have no known range; save it with 8 or 16 bits per channel")
    return image.convert("RGB")


def find_unreadable(pairs: Iterable[Pair], most: int) -> tuple[dict[str, str], int, int]:
    """Decode images before the start.

    Arguments:
        most: images to check, evenly spread.

    Returns:
        The error of each unreadable image, the number checked, and the number of images.
    """
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)))
    stride = max(1, -(-len(names) // most)) if most > 0 else len(names) + 1
    looked = names[::stride] if most > 0 else []
    wrong: dict[str, str] = {}
    for name in looked:
        try:
            decode(name)
        except UsageError as error:
            wrong[name] = error.message
    return wrong, len(looked), len(names)


def without(pairs: Sequence[Pair], unreadable: Iterable[str]) -> list[Pair]:
    """The pairs that use none of these images."""
    gone = set(unreadable)
    return [pair for pair in pairs if pair.first not in gone and pair.second not in gone]
