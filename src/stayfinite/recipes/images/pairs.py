"""Read pairs of images from a table: img1, img2, score1, score2, label."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stayfinite.errors import UsageError
from stayfinite.readers.data.tar_rows import has_member
from stayfinite.recipes.images.rows import read_rows

LABELS = ("First", "Second", "Similar")
"""Class names, by number."""
FIRST, SECOND, SIMILAR = range(3)
SWAPPED = (SECOND, FIRST, SIMILAR)
"""Label after swapping the images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two images and their label."""

    first: str
    second: str
    label: int
    score1: float | None = None
    score2: float | None = None
    fold: int | None = None
    """From the table's column of that name."""
    where: str = ""
    """File and line."""

    @property
    def key(self) -> tuple[str, str]:
        """Equal for a pair and its swap."""
        return (self.first, self.second) if self.first <= self.second else (self.second, self.first)

    @property
    def turned(self) -> Pair:
        """The pair with its images in key order, equal for a pair and its swap."""
        if (self.first, self.second) == self.key:
            return self
        return replace(
            self, first=self.second, second=self.first, score1=self.score2, score2=self.score1,
            label=SWAPPED[self.label],
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.first} | {self.second}: {LABELS[self.label]}"


def read_pairs(
    path: str, *, image_dir: str | None = None, margin: float = 0.0, say: Callable[[str], None] = lambda _: None
) -> list[Pair]:
    """The pairs of a table or an image directory.

    Arguments:
        path: a table with img1 and img2, plus label or score1 and score2, and optionally fold; or with chosen and
            rejected; or an ImageFolder with metadata, or with the folders chosen/ and rejected/.
        image_dir: base of relative image paths; default: the directory of the file.
        margin: without a label, scores at most this far apart are `Similar`.
        say: receives the format and the number of pairs.

    Raises:
        UsageError: a missing or invalid file, column, value or image; names the line.
    """
    read = read_rows(path)
    if not read.rows:
        raise UsageError(f"no pairs in {path}", fix="a header img1,img2,score1,score2,label and one line per pair")
    directory = Path(image_dir) if image_dir is not None else read.directory
    if not directory.is_dir():
        raise UsageError(f"--image-dir {directory}: no such directory", fix="name the directory of the images")
    pairs = [_pair(row, where, directory, margin) for where, row in read.rows]
    _check_files(pairs)
    say(f"{Path(path).name}: {read.format}, {len(pairs):,} rows")
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """Unique pairs, and what was odd about them."""

    pairs: list[Pair]
    both_orders: int
    """Duplicates in either order. One is kept, since each is trained in both orders."""
    torn: list[str]
    """Places of pairs with contradictory labels, which are dropped."""
    against_scores: float
    """Share of pairs whose label contradicts their scores."""

    def __str__(self) -> str:
        words = [f"{len(self.pairs):,} pairs"]
        if self.both_orders:
            words.append(f"{self.both_orders:,} are duplicates or swapped duplicates")
        if self.torn:
            words.append(f"dropped {len(self.torn):,} with contradictory labels (first: {self.torn[0]})")
        return "; ".join(words)


def sort_out(pairs: Sequence[Pair]) -> Sorted:
    """Each pair once, in any order; contradictory ones are dropped."""
    labels: dict[tuple[str, str], set[int]] = {}
    for pair in pairs:
        labels.setdefault(pair.key, set()).add(pair.turned.label)
    kept: dict[tuple[str, str], Pair] = {}
    torn = []
    for pair in pairs:
        if len(labels[pair.key]) > 1:
            torn.append(pair.where)
        else:
            kept.setdefault(pair.key, pair)
    return Sorted(
        pairs=list(kept.values()), both_orders=len(pairs) - len(torn) - len(kept), torn=torn,
        against_scores=_against_scores(kept.values()),
    )  # fmt: skip


def _against_scores(pairs: Iterable[Pair]) -> float:
    judged = [
        (pair.label == FIRST) == (pair.score1 > pair.score2)
        for pair in pairs
        if pair.label != SIMILAR and pair.score1 is not None and pair.score2 is not None and pair.score1 != pair.score2
    ]
    # If most disagree, low scores are the better ones: count the others.
    wrong = judged.count(False) / len(judged) if judged else 0.0
    return min(wrong, 1 - wrong)


def _pair(row: Mapping[str, str], where: str, directory: Path, margin: float) -> Pair:
    for name in ("img1", "img2"):
        if not row[name]:
            raise UsageError(f"{where}: {name} is empty", fix="name an image, or remove the line")
    score1, score2 = (_number(row.get(name, ""), name, where) for name in ("score1", "score2"))
    return Pair(
        first=str(directory / row["img1"]), second=str(directory / row["img2"]), score1=score1, score2=score2,
        label=_label(row.get("label", ""), score1, score2, where, margin), fold=_fold(row.get("fold", ""), where),
        where=where,
    )  # fmt: skip


def _number(text: str, name: str, where: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{where}: {name} is {text!r}, expected a number", fix="fix the line") from None
    return value if math.isfinite(value) else None


def _label(text: str, score1: float | None, score2: float | None, where: str, margin: float) -> int:
    if text:
        by_name = {name.lower(): number for number, name in enumerate(LABELS)}
        by_name |= {str(number): number for number in range(len(LABELS))}
        known = by_name.get(text.lower().removesuffix(".0"))
        if known is None:
            raise UsageError(
                f"{where}: the label is {text!r}, expected one of {', '.join(LABELS)}, or 0, 1, 2", fix="fix the line"
            )
        return known
    if score1 is None or score2 is None:
        raise UsageError(f"{where}: no label, and no two scores to compute one", fix=("give a label or two scores"))
    if abs(score1 - score2) <= margin:
        return SIMILAR
    return FIRST if score1 > score2 else SECOND


def _fold(text: str, where: str) -> int | None:
    if not text:
        return None
    try:
        return int(text.removesuffix(".0"))
    except ValueError:
        raise UsageError(f"{where}: the fold is {text!r}, expected a whole number", fix="fix the line") from None


def _check_files(pairs: Sequence[Pair]) -> None:
    wanted = {name: pair.where for pair in reversed(pairs) for name in (pair.second, pair.first)}
    missing = [name for name in wanted if not Path(name).is_file() and not has_member(name)]
    if missing:
        missing.sort(key=lambda name: wanted[name])
        shown = "; ".join(f"{name} ({wanted[name]})" for name in missing[:3])
        raise UsageError(
            f"{len(missing):,} of {len(wanted):,} images are missing: {shown}{'; ...' * (len(missing) > 3)}",
            fix="paths in the table are relative to its directory, or to --image-dir",
        )
