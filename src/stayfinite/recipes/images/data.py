"""The pairs of a run: read, their images decoded, split into training and validation.

A pair and its swap are never separated. An unreadable image is an error, never a black image.
"""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any, Literal

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.tar_rows import member_bytes, tar_of
from stayfinite.recipes.images.pairs import SIMILAR, Pair, read_pairs, sort_out
from stayfinite.recipes.running.directories import replacing

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
    with MissingExtra.unless("pillow", extra="recipes", what_for="reading images"):
        from PIL import Image, ImageOps
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


Task = Literal["size", "brightness"]
"""The property that is the score of an image."""
FOLDS = 5
LEVELS = 5
"""Number of distinct scores; two images with the same score are `Similar`."""


def draw_pairs(directory: Path, *, task: Task, seed: int, images: int = 600, pairs: int = 3000, side: int = 32) -> Path:
    """Draw images and write pairs.csv, with no image in two folds. Does nothing if the table exists.

    Returns:
        Path of the table.
    """
    table = directory / "pairs.csv"
    if table.exists():
        return table
    chance = random.Random(f"{task} {seed}")
    (directory / "images").mkdir(parents=True, exist_ok=True)
    scores: dict[str, int] = {}
    for number in range(images):
        name = f"images/{number:04}.png"
        scores[name] = number // FOLDS % LEVELS  # every level in each fold
        _draw(chance, task, scores[name], side).save(directory / name)
    names = list(scores)
    with replacing(table, newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["img1", "img2", "score1", "score2", "label", "fold"])
        for fold in range(FOLDS):
            for one, two, label in _paired(names[fold::FOLDS], scores, chance)[: pairs // FOLDS]:
                writer.writerow([one, two, scores[one], scores[two], ("First", "Second", "Similar")[label], fold])
    return table


def _paired(names: list[str], scores: dict[str, int], chance: random.Random) -> list[tuple[str, str, int]]:
    """All pairs in random order, classes alternating while each has one left."""
    by_label: dict[int, list[tuple[str, str, int]]] = {0: [], 1: [], 2: []}
    for one, two in combinations(names, 2):
        if chance.random() < 0.5:
            one, two = two, one
        label = 2 if scores[one] == scores[two] else 0 if scores[one] > scores[two] else 1
        by_label[label].append((one, two, label))
    for found in by_label.values():
        chance.shuffle(found)
    turns = zip_longest(*by_label.values())
    return [pair for turn in turns for pair in turn if pair is not None]


def _draw(chance: random.Random, task: Task, level: int, side: int) -> Any:
    """Draw one shape on a noisy background. Everything but the score is random."""
    import numpy as np
    from PIL import Image, ImageDraw

    big = side * 4  # drawn larger and scaled down for smooth edges
    size_level = level if task == "size" else chance.randrange(LEVELS)
    light_level = level if task == "brightness" else chance.randrange(LEVELS)
    radius = big * (0.10 + 0.075 * size_level + chance.uniform(-0.008, 0.008))
    light = 90 + 38 * light_level + chance.uniform(-4, 4)
    x, y = (chance.uniform(radius + 2, big - radius - 2) for _ in range(2))
    mask = Image.new("L", (big, big))
    pen = ImageDraw.Draw(mask)
    kind = chance.choice(("circle", "square", "diamond"))
    if kind == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    elif kind == "square":
        half = radius * 0.886  # same area as the circle
        pen.rectangle((x - half, y - half, x + half, y + half), fill=255)
    else:
        half = radius * 1.253
        pen.polygon([(x, y - half), (x + half, y), (x, y + half), (x - half, y)], fill=255)
    covered = np.asarray(mask.resize((side, side), Image.Resampling.BOX), dtype=np.float32)[..., None] / 255
    noise = np.random.default_rng(chance.randrange(2**32)).normal(0, 8, (side, side, 3))
    tint = np.array([chance.uniform(0.85, 1.0) for _ in range(3)])
    pixels = 40 + noise + covered * (light * tint - 40)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
