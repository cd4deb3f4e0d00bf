"""Read pairs of images: a table, an ImageFolder with metadata, preferences, or two folders."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.readers.data.opening import open_data, told
from stayfinite.readers.data.tar_rows import TAR, has_member

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
    def label_of_key(self) -> int:
        """The label with the images in key order, equal for a pair and its swap."""
        return self.label if self.first <= self.second else SWAPPED[self.label]

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
        labels.setdefault(pair.key, set()).add(pair.label_of_key)
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

    def read(name: str, kind: Callable[[str], Any], wanted: str) -> Any:
        text = row.get(name, "")
        try:
            return kind(text) if text else None
        except ValueError:
            raise UsageError(f"{where}: {name} is {text!r}, expected {wanted}", fix="fix the line") from None

    scores = (read(name, float, "a number") for name in ("score1", "score2"))
    score1, score2 = (score if score is not None and math.isfinite(score) else None for score in scores)
    return Pair(
        first=str(directory / row["img1"]), second=str(directory / row["img2"]), score1=score1, score2=score2,
        label=_label(row.get("label", ""), score1, score2, where, margin), where=where,
        fold=read("fold", lambda text: int(text.removesuffix(".0")), "a whole number"),
    )  # fmt: skip


def _label(text: str, score1: float | None, score2: float | None, where: str, margin: float) -> int:
    if text:
        names = {known: number for number, name in enumerate(LABELS) for known in (name.lower(), str(number))}
        known = names.get(text.lower().removesuffix(".0"))
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


METADATA = ("metadata.csv", "metadata.tsv", "metadata.jsonl", "metadata.parquet")
"""Metadata files of a `datasets` ImageFolder."""
BETTER, WORSE = "chosen", "rejected"
FILE_NAME = "file_name"
EXPECTED = (
    "a table with img1,img2 and label or score1,score2; or chosen,rejected; or a directory with metadata.csv, with "
    "chosen/ and rejected/, or with WebDataset .tar files"
)
PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows with normalized names: img1, img2, score1, score2, label, fold."""

    rows: Sequence[tuple[str, Mapping[str, str]]]
    """File and line of each row, and its values."""
    format: str
    directory: Path
    """Directory that image names are relative to by default."""


def read_rows(path: str) -> Rows:
    """The rows of a table or directory.

    Raises:
        UsageError: not found, a broken row, or a missing column; names the line.
    """
    place = Path(path)
    if place.is_dir():
        found = next((place / name for name in METADATA if (place / name).is_file()), None)
        if found is not None:
            read = _table(found)
            return Rows(rows=read.rows, format=f"ImageFolder with {found.name}, {read.format}", directory=place)
        if (place / BETTER).is_dir() and (place / WORSE).is_dir():
            return Rows(rows=_folders(place), format=f"ImageFolder pairs, {BETTER}/ and {WORSE}/", directory=place)
        if any(place.rglob(f"*{TAR}")):
            return _table(place)
        raise UsageError(
            f"{path} holds no pairs: expected metadata.csv, {BETTER}/ and {WORSE}/, or .tar files", fix=EXPECTED
        )
    if not place.is_file():
        raise UsageError(f"{path}: no such file", fix=EXPECTED)
    return _table(place)


def _table(path: Path) -> Rows:
    rows: list[tuple[str, Mapping[str, str]]] = []
    format_ = kind = ""
    sources = open_data([path])
    for source, chunk in ((each, chunk) for each in sources for chunk in each.chunks()):
        for broken in chunk.broken:
            raise UsageError(f"{chunk.path}:{broken.line}: {broken.why}", fix="fix or remove the line")
        if not chunk.columns:
            continue
        names = {name.strip().lower(): name for name in reversed(list(chunk.columns))}
        taken = _taken(chunk.path, list(reversed(names)))
        if not chunk.lines:
            continue
        format_ = format_ or told(source, {} if BETTER in names else chunk.columns)
        preferred = taken["img1"] == BETTER
        kind = "preference rows" if preferred else "image pairs"
        fixed = {"label": "First"} if preferred else {}
        for number, line in enumerate(chunk.lines):
            values = {name: _written(chunk.columns[names[column]][number]) for name, column in taken.items()}
            rows.append((f"{chunk.path}:{line}", values | fixed))
    # Names in a tar already include its path, relative to the working directory.
    directory = Path() if sources[0].kind == "tar" else path.parent
    return Rows(rows=rows, format=f"{format_}, {kind}", directory=directory)


def _taken(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Map our names to the table's columns."""
    files = [name for name in names if name.endswith(FILE_NAME)]
    taken = {name: name for name in ("img1", "img2", "label", "score1", "score2", "fold") if name in names}
    if "img1" not in taken and {BETTER, WORSE} <= {*names}:
        return {name: name for name in ("fold",) if name in names} | {"img1": BETTER, "img2": WORSE}
    if "img1" not in taken and len(files) == 2:
        taken |= {"img1": files[0], "img2": files[1]}
    missing = [name for name in ("img1", "img2") if name not in taken]
    if "label" not in taken and not {"score1", "score2"} <= taken.keys():
        missing.append("label (or score1 and score2)")
    if missing:
        raise UsageError(
            f"{path}: no column {', '.join(missing)}; it has {', '.join(names) or 'none'}",
            fix="name the columns img1,img2,score1,score2,label in the header",
        )
    return taken


def _folders(place: Path) -> list[tuple[str, Mapping[str, str]]]:
    """Images with the same name in two folders."""
    better, worse = ({file.stem: file for file in _pictures(place / name)} for name in (BETTER, WORSE))
    alone = sorted(better.keys() ^ worse.keys())
    if alone:
        file = better.get(alone[0]) or worse[alone[0]]
        more = f" and {len(alone) - 1} more" if alone[1:] else ""
        raise UsageError(
            f"{file} has no partner with the same name in the other folder{more}",
            fix=f"use one name in {place / BETTER} and {place / WORSE}, or remove it",
        )
    both = ((better[name], worse[name]) for name in sorted(better))
    return [
        (str(one), {"img1": str(one.relative_to(place)), "img2": str(other.relative_to(place)), "label": "First"})
        for one, other in both
    ]


def _pictures(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURES)


def _written(value: Any) -> str:
    return "" if value is None else str(value).strip()
