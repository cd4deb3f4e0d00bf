"""Read rows of image pairs: a table, an ImageFolder with metadata, preferences, or two folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.readers.data.opening import open_data, told
from stayfinite.readers.data.tar_rows import TAR

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
    return [
        (
            str(better[name]),
            {
                "img1": str(better[name].relative_to(place)),
                "img2": str(worse[name].relative_to(place)),
                "label": "First",
            },
        )
        for name in sorted(better)
    ]


def _pictures(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURES)


def _written(value: Any) -> str:
    return "" if value is None else str(value).strip()
