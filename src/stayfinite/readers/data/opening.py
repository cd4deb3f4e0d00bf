"""From paths as people type them to files with a format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from stayfinite.errors import UsageError
from stayfinite.readers.data.arrow_rows import arrow_chunks, parquet_chunks
from stayfinite.readers.data.chunk import Chunk, Source
from stayfinite.readers.data.csv_rows import csv_chunks
from stayfinite.readers.data.json_arrays import json_chunks
from stayfinite.readers.data.json_rows import jsonl_chunks
from stayfinite.readers.data.text_lines import PACKED, ending, text_file
from stayfinite.readers.data.text_rows import aligned_chunks, txt_chunks

FORMATS: dict[str, str] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".jsonlines": "jsonl",
    ".json": "json", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".txt": "txt", ".text": "txt",
}  # fmt: skip
READERS: dict[str, Callable[[Source], Iterator[Chunk]]] = {
    "csv": csv_chunks,
    "jsonl": jsonl_chunks,
    "json": json_chunks,
    "parquet": parquet_chunks,
    "arrow": arrow_chunks,
    "txt": txt_chunks,
}
_MAGIC = (
    (b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"\xff\xff\xff\xff", "arrow"),
    (b"PK\x03\x04", "a zip archive or an Excel sheet"),
    (b"\x80\x04", "a pickle"), (b"\x80\x05", "a pickle"), (b"SQLite format 3", "an SQLite database"),
    (b"\x93NUMPY", "a numpy array"), (b"\x28\xb5\x2f\xfd", "compressed with zstd"), (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"), (b"\xff\xd8\xff", "a picture"), (b"\x89HDF", "HDF5"),
    (b"\xd0\xcf\x11\xe0", "an Office file"),
)  # fmt: skip
_OPPOSITES = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"), ("inputs", "outputs"))


def open_data(paths: Sequence[str | Path]) -> list[Source]:
    """The files behind these paths, in the order of reading; nothing is read yet but their first bytes."""
    files = [file for path in paths for file in _files(Path(path))]
    if (pair := _aligned(files)) is not None:
        return [pair]
    return [_source(file) for file in files]


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise UsageError(f"{path} does not exist", fix="name a csv, tsv, json, jsonl, parquet, arrow or txt file")
    if not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").is_file():
        parts = ", ".join(sorted(part.name for part in path.iterdir() if part.is_dir()))
        raise UsageError(f"{path} holds several parts: {parts}", fix=f"name one: --data {path / 'train'}")
    found = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    kinds = {file: FORMATS[ending(file)] for file in found if ending(file) in FORMATS}
    if any(kind == "arrow" for kind in kinds.values()):
        # What `datasets` saves has its notes in JSON beside the rows.
        kinds = {file: kind for file, kind in kinds.items() if kind == "arrow"}
    if not kinds:
        raise UsageError(f"{path} holds no file of data", fix=f"known endings are {' '.join(FORMATS)}")
    several = sorted(set(kinds.values()))
    if len(several) > 1:
        raise UsageError(f"{path} holds files of several kinds: {', '.join(several)}", fix="name the files themselves")
    return list(kinds)


def _source(path: Path) -> Source:
    kind = _kind(path)
    source = Source(path=path, kind=kind, size=path.stat().st_size, chunks=lambda: iter(()))
    source.chunks = partial(READERS[kind], source)
    return source


def _kind(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", fix="check the path and its permissions") from error
    for magic, name in _MAGIC:
        if head.startswith(magic):
            if name in READERS:
                return name
            raise UsageError(f"{path} is {name}, not a table of rows", fix="save it as csv, jsonl or parquet")
    kind = FORMATS.get(ending(path), "")
    if kind in ("parquet", "arrow"):
        if not head:
            raise UsageError(f"{path} is empty", fix="download or write the file again")
        raise UsageError(f"{path} is not {kind}: it begins with {head[:8]!r}", fix="download or write the file again")
    if kind == "json":
        return "jsonl" if _lines_of_json(path) else "json"
    return kind or _guessed(path, head)


def _guessed(path: Path, head: bytes) -> str:
    if path.suffix.lower() not in PACKED and head.count(0) > len(head) // 2:
        raise UsageError(f"{path} is not text", fix=f"known endings are {' '.join(FORMATS)}")
    return "jsonl" if head.lstrip()[:1] == b"{" else "txt"


def _lines_of_json(path: Path) -> bool:
    with text_file(path, newline="\n") as file:
        lines = file.lines()
        first, second = next(lines, "").strip(), next(lines, "").strip()
    return first.startswith("{") and first.endswith("}") and second.startswith("{")


def _aligned(files: Sequence[Path]) -> Source | None:
    """Two files of plain text whose names say that their lines belong together: train.tr and train.en."""
    if len(files) != 2 or any(FORMATS.get(ending(file), "txt") != "txt" for file in files):
        return None
    if any(_kind(file) != "txt" for file in files):
        return None
    one, two = files
    names = _sides(one, two)
    if names is None:
        return None
    size = one.stat().st_size + two.stat().st_size
    source = Source(path=one, kind="aligned", size=size, chunks=lambda: iter(()))
    source.chunks = lambda: aligned_chunks(source, two, names)
    source.remarks.append(f"line by line, {one.name} belongs to {two.name}")
    return source


def _sides(one: Path, two: Path) -> tuple[str, str] | None:
    if one.stem == two.stem and one.suffix != two.suffix:
        return one.suffix.lstrip(".") or "source", two.suffix.lstrip(".") or "target"
    for left, right in _OPPOSITES:
        if one.name.lower().replace(left, right) == two.name.lower():
            return left, right
    return None
