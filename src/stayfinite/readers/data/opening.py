"""Resolve paths typed by people to data files with a known format; from large ones, only the beginnings are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.errors import UsageError
from stayfinite.readers.data.arrow_rows import arrow_chunks, parquet_chunks
from stayfinite.readers.data.chunk import Chunk, Source
from stayfinite.readers.data.csv_rows import csv_chunks
from stayfinite.readers.data.json_rows import json_chunks, jsonl_chunks
from stayfinite.readers.data.packed import PACKED, ZIP, archive_of, members_of, open_bytes, size_of
from stayfinite.readers.data.shapes import Columns, shape_of
from stayfinite.readers.data.tar_rows import tar_chunks
from stayfinite.readers.data.text_lines import ending, text_file
from stayfinite.readers.data.text_rows import aligned_chunks, txt_chunks
from stayfinite.readers.data.tmx_rows import tmx_chunks

LARGE = 1 << 30  # bytes of text above which only the beginnings are read
READ = 256 << 20  # bytes on disk to read from larger files
FILES = 256
PACKS = 4  # typical compression ratio of text


def text_size(sources: Sequence[Source]) -> int:
    """Approximate bytes of text in these files."""
    return sum(each.size * (PACKS if each.path.suffix.lower() in PACKED else 1) for each in sources)


def beginnings(sources: Sequence[Source], *, large: int = LARGE, read: int = READ) -> list[Source]:
    """Return small files as they are; from large ones a spread selection, each limited to its share of bytes."""
    if text_size(sources) <= large:
        return list(sources)
    chosen = list(sources)[:: -(-len(sources) // FILES)]
    for source in chosen:
        source.most = max(1, read // len(chosen) // (PACKS if source.path.suffix.lower() in PACKED else 1))
        source.chunks = partial(_beginning, source, source.chunks)
    return chosen


def _beginning(source: Source, chunks: Callable[[], Iterator[Chunk]]) -> Iterator[Chunk]:
    """The chunks of a file up to its share of bytes."""
    for chunk in chunks():
        yield chunk
        if chunk.done >= source.most:
            return


def told_beginnings(all_of_them: Sequence[Source], read: Sequence[Source]) -> str:
    """Describe which part of large files was read; empty if everything was."""
    if not any(source.most for source in read):
        return ""
    size, looked = sum(source.size for source in all_of_them), sum(source.share for source in read)
    return (
        f"the beginnings of {len(read):,} of {len(all_of_them):,} files, {looked / 1e6:,.0f} MB of "
        f"{size / 1e9:,.1f} GB; --whole reads all"
    )


FORMATS: dict[str, str] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".jsonlines": "jsonl",
    ".json": "json", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".txt": "txt", ".text": "txt", ".tmx": "tmx", ".tar": "tar",
}  # fmt: skip
READERS: dict[str, Callable[[Source], Iterator[Chunk]]] = {
    "csv": csv_chunks, "jsonl": jsonl_chunks, "json": json_chunks, "parquet": parquet_chunks, "arrow": arrow_chunks,
    "txt": txt_chunks, "tmx": tmx_chunks, "tar": tar_chunks,
}  # fmt: skip
TOLD = {
    "csv": "CSV", "tsv": "TSV", "jsonl": "JSON lines", "json": "JSON", "parquet": "Parquet", "arrow": "Arrow",
    "txt": "plain text", "tmx": "TMX", "aligned": "Moses, two aligned texts", "texts": "Moses, two aligned texts",
    "hub": "data set of the hub", "tar": "WebDataset tar",
}  # fmt: skip
"""Format names for people."""
NOTES = frozenset({"readme", "license", "licence", "copying", "notice", "changelog"})
"""Documentation files in an archive of data."""
_MAGIC = (
    (b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"\xff\xff\xff\xff", "arrow"),
    (b"PK\x03\x04", "an Excel sheet or another zip archive"), (b"\x80\x04", "a pickle"), (b"\x80\x05", "a pickle"),
    (b"SQLite format 3", "an SQLite database"), (b"\x93NUMPY", "a numpy array"), (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"), (b"\xff\xd8\xff", "a picture"), (b"\x89HDF", "HDF5"),
    (b"\xd0\xcf\x11\xe0", "an Office file"),
)  # fmt: skip
_LANGUAGE = lazy_regex(r"\.[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
_OPPOSITES = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"), ("inputs", "outputs"))


def open_data(paths: Sequence[str | Path]) -> list[Source]:
    """The files behind these paths, in reading order; only their first bytes are read."""
    files = [file for name in paths for path in matching(name) or [Path(name)] for file in _files(path)]
    if (pair := _aligned(files)) is not None:
        return [pair]
    return [_source(file) for file in files]


def told(source: Source, columns: Columns) -> str:
    """Describe the format of a file for people: `JSON lines, ShareGPT conversations`."""
    shape = shape_of(columns)
    inside = archive_of(source.path) is not None
    kind = TOLD["tsv" if source.kind == "csv" and ending(source.path) in (".tsv", ".tab") else source.kind]
    return ("zip of " if inside else "") + kind + (f", {shape.name}" if shape is not None else "")


def matching(name: str | Path) -> list[Path]:
    """The paths that a name or a pattern (`part-*.jsonl.gz`) matches; [] if none."""
    path = Path(name)
    if path.exists() or archive_of(path) is not None:
        return [path]
    root = Path(path.anchor)
    try:
        return sorted(root.glob(str(path.relative_to(root)))) if set(str(path)) & set("*?[") else []
    except ValueError:  # not a pattern
        return []


def _files(path: Path) -> list[Path]:
    if not path.exists() and archive_of(path) is None:
        raise UsageError(
            f"no such file: {path}", fix="name a csv, tsv, json, jsonl, parquet, arrow, tmx, tar or txt file"
        )
    if path.is_file() and path.suffix.lower() == ZIP:
        return _chosen(path, members_of(path))
    if not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").is_file():
        parts = ", ".join(sorted(part.name for part in path.iterdir() if part.is_dir()))
        raise UsageError(f"{path} holds several parts: {parts}", fix=f"name one: --data {path / 'train'}")
    return _chosen(path, [file for file in path.rglob("*") if file.is_file()])


def _chosen(path: Path, files: Sequence[Path]) -> list[Path]:
    """The data files of a directory or archive: all of one kind, or two aligned texts."""
    found = sorted(file for file in files if not file.name.startswith("."))
    kinds = {
        file: FORMATS[ending(file)] for file in found if ending(file) in FORMATS and file.stem.lower() not in NOTES
    }
    if any(kind == "arrow" for kind in kinds.values()):
        # `datasets` saves its metadata as JSON next to the rows.
        kinds = {file: kind for file, kind in kinds.items() if kind == "arrow"}
    if not kinds:
        return _moses(path, found)
    several = sorted(set(kinds.values()))
    if len(several) > 1:
        raise UsageError(f"{path} holds files of several kinds: {', '.join(several)}", fix="name the files themselves")
    if archive_of(next(iter(kinds))) is not None and several[0] in ("parquet", "arrow", "tar"):
        raise UsageError(f"{path} holds {several[0]}, which cannot be read in a zip archive", fix="unpack it first")
    return list(kinds)


def _moses(path: Path, found: Sequence[Path]) -> list[Path]:
    """The two sides of an OPUS corpus: `NAME.de-en.de` and `NAME.de-en.en`, ignoring notes."""
    stems: dict[str, list[Path]] = {}
    for file in found:
        if _LANGUAGE.fullmatch(ending(file)) and ending(file) not in (".xml", ".ids", ".md", ".py"):
            stems.setdefault(_plain(file).stem, []).append(file)
    pairs = {stem: files for stem, files in stems.items() if len(files) == 2}
    if len(pairs) == 1:
        return next(iter(pairs.values()))
    if pairs:
        raise UsageError(
            f"{path} holds several aligned corpora: {', '.join(sorted(pairs)[:5])}", fix="name the two files of one"
        )
    raise UsageError(
        f"no data file in {path}",
        fix=f"known extensions: {' '.join(FORMATS)}; or two aligned texts, NAME.de and NAME.en",
    )


def _plain(path: Path) -> Path:
    """The name without its compression suffix."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def _source(path: Path) -> Source:
    kind = _kind(path)
    source = Source(path=path, kind=kind, size=size_of(path), chunks=lambda: iter(()))
    source.chunks = partial(READERS[kind], source)
    return source


def _kind(path: Path) -> str:
    try:
        with open_bytes(path) as (file, _):
            head = file.read(64)
    except OSError as error:
        if path.suffix.lower() in PACKED and not error.strerror:
            raise UsageError(f"cannot unpack {path}: {error}", fix="download or write the file again") from error
        raise UsageError(f"{path}: {error.strerror or error}", fix="check the path and its permissions") from error
    for magic, name in _MAGIC:
        if head.startswith(magic):
            if name in READERS and path.suffix.lower() not in PACKED:
                return name
            what = f"{name} in another wrapping" if name in READERS else name
            raise UsageError(f"{path} is {what}, not a table of rows", fix="save it as csv, jsonl or parquet")
    kind = FORMATS.get(ending(path), "")
    if kind == "tar" and path.suffix.lower() in PACKED:
        raise UsageError(
            (f"{path} is a compressed tar, which cannot be read row by row"), fix="unpack it to a plain .tar"
        )
    if kind in ("parquet", "arrow", "tar"):
        if not head:
            raise UsageError(f"{path} is empty", fix="download or write the file again")
        if kind == "tar":
            return kind
        raise UsageError(f"{path} is not {kind}: it starts with {head[:8]!r}", fix="download or write the file again")
    if kind == "json":
        return "jsonl" if _lines_of_json(path) else "json"
    return kind or _guessed(path, head)


def _guessed(path: Path, head: bytes) -> str:
    if head.count(0) > len(head) // 2:
        raise UsageError(f"{path} is not text", fix=f"known extensions: {' '.join(FORMATS)}")
    if b"<tmx" in head:
        return "tmx"
    return "jsonl" if head.lstrip()[:1] == b"{" else "txt"


def _lines_of_json(path: Path) -> bool:
    with text_file(path, newline="\n") as file:
        lines = file.lines()
        first, second = next(lines, "").strip(), next(lines, "").strip()
    return any(
        first.startswith(left) and first.endswith(right) and second.startswith(left)
        for left, right in (("{", "}"), ("[", "]"))
    )


def _aligned(files: Sequence[Path]) -> Source | None:
    """Two text files whose names mark their lines as aligned: train.tr and train.en."""
    if len(files) != 2 or any(FORMATS.get(ending(file), "txt") != "txt" for file in files):
        return None
    if any(_kind(file) != "txt" for file in files):
        return None
    one, two = files
    names = _sides(one, two)
    if names is None:
        return None
    size = size_of(one) + size_of(two)
    source = Source(path=one, kind="aligned", size=size, chunks=lambda: iter(()), files=(one, two))
    source.chunks = lambda: aligned_chunks(source, two, names)
    source.remarks.append(f"line by line, {one.name} belongs to {two.name}")
    return source


def _sides(one: Path, two: Path) -> tuple[str, str] | None:
    one, two = _plain(one), _plain(two)
    if one.stem == two.stem and one.suffix != two.suffix:
        return one.suffix.lstrip(".") or "source", two.suffix.lstrip(".") or "target"
    for left, right in _OPPOSITES:
        if one.name.lower().replace(left, right) == two.name.lower():
            return left, right
    return None
