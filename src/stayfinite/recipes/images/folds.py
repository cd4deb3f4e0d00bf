"""Split into training and validation folds. A pair and its swap are never separated."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from stayfinite.errors import UsageError
from stayfinite.recipes.images.pairs import SIMILAR, Pair

Apart = Literal["pairs", "images"]


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
        held = {pair.key for pair in given if pair.fold == fold} if given else _dealt(pairs, folds)[fold]
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


def _dealt(pairs: Sequence[Pair], folds: int) -> list[set[tuple[str, str]]]:
    """Keys by fold in hash order, with `Similar` dealt separately to balance the folds."""
    hands: list[set[tuple[str, str]]] = [set() for _ in range(folds)]
    kinds: dict[bool, list[Pair]] = defaultdict(list)
    for pair in pairs:
        kinds[pair.label == SIMILAR].append(pair)
    turn = 0
    for kind in (False, True):
        for pair in sorted(kinds[kind], key=lambda each: _number("\0".join(each.key))):
            hands[turn % folds].add(pair.key)
            turn += 1
    return hands


def _by_image(pairs: Sequence[Pair], folds: int, fold: int) -> Split:
    images = sorted(_images(pairs), key=_number)
    held = set(images[fold::folds])
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
