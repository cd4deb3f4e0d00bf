"""Read texts from files, drop short and repeated ones, hold out a share for validation."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.inspection.data.headers import WRITTEN, is_header
from stayfinite.readers.data.chunk import Broken, Chunk, Source
from stayfinite.readers.data.opening import open_data, told
from stayfinite.readers.data.shapes import Shape, conversation, shape_of, sides
from stayfinite.recipes.language.built_in import travel_notes

COLUMNS = ("text", "content", "sentence", "document", "body", "line")
"""Usual names of a text column."""
FEWEST = 10
"""Minimum number of examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Texts read, and counts of those dropped."""

    texts: list[str]
    short: int = 0
    repeated: int = 0
    broken: int = 0
    remarks: tuple[str, ...] = ()
    """Notes on how the files were read."""
    formats: Mapping[str, int] = field(default_factory=dict)
    """Rows by format."""

    def __str__(self) -> str:
        left_out = {"short": self.short, "repeated": self.repeated, "unreadable": self.broken}
        words = ", ".join(f"{count:,} {why}" for why, count in left_out.items() if count)
        return f"{len(self.texts):,} texts" + (f" (dropped: {words})" if words else "")


def read_texts(paths: Sequence[str], *, column: str | None = None, shortest: int = 10) -> Texts:
    """Texts of files and directories: lines of .txt files, rows of tables.

    Arguments:
        column: text column of a table; guessed by default.
        shortest: texts of at most this many characters are dropped.

    Raises:
        UsageError: a missing path, no text, no such column, or a truncated file.
    """
    reading = Reading(column)
    kept = keep(
        chain.from_iterable(reading.texts(source) for path in paths for source in sources_of(Path(path))),
        shortest=shortest,
    )
    remarks = tuple(dict.fromkeys(reading.remarks))
    return replace(kept, broken=reading.broken, remarks=remarks, formats=dict(reading.formats))


@dataclass
class Reading:
    """Reads texts of several files and records what it notices.

    Arguments:
        column: as in `read_texts`.
        tell: called for every unreadable row, instead of recording a remark.
    """

    column: str | None
    tell: Callable[[Path, Broken], None] | None = None
    broken: int = field(default=0, init=False)
    done: int = field(default=0, init=False)
    """Bytes read of the current file."""
    remarks: list[str] = field(default_factory=list, init=False)
    formats: Counter[str] = field(default_factory=Counter, init=False)

    def texts(self, source: Source) -> Iterator[Any]:
        """All texts of a file."""
        rows, format_ = 0, ""
        for chunk in source.chunks():
            self.broken += len(chunk.broken)
            self.done = chunk.done
            if self.tell is None:
                _refuse_cut(chunk)
                self.remarks += [f"{chunk.path}:{each.line}: {each.why}" for each in chunk.broken[:3]]
            if chunk.lines:
                format_ = format_ or told(source, chunk.columns)
                yield from self._of(chunk, source, first=not rows)
                rows += len(chunk.lines)
            # After the valid rows before it.
            if self.tell is not None:
                for each in chunk.broken:
                    self.tell(chunk.path, each)
        self.formats[format_] += rows
        self.remarks += [*source.remarks, *filter(None, [source.encoding])]

    def _of(self, chunk: Chunk, source: Source, *, first: bool) -> Iterator[Any]:
        shape = shape_of(chunk.columns) if self.column is None else None
        if shape is not None and (shape.chat or shape.name == "Alpaca rows"):
            yield from _whole(shape, chunk)
            return
        named = _column(chunk, source, self.column)
        if first and self.column is None and not _is_name(named, source):
            self.remarks.append(f"{chunk.path}: no header: the first row is read as text")
            yield named
        yield from chunk.columns[named]


def _refuse_cut(chunk: Chunk) -> None:
    """Refuse a truncated file; single unreadable rows are skipped."""
    for each in chunk.broken:
        if each.ends:
            raise UsageError(f"{chunk.path}:{each.line}: {each.why}", fix=f"download or write {chunk.path.name} again")


def _whole(shape: Shape, chunk: Chunk) -> Iterator[str]:
    """Rows with two sides, or conversations, as one text each."""
    if shape.chat:
        yield from (conversation(value).whole for value in chunk.columns[shape.source[0]])
        return
    made = sides(shape, chunk.columns, chunk.lines)
    for one, two in zip(made.source, made.target, strict=True):
        yield "\n".join(str(part) for part in (one, two) if part is not None)


def keep(values: Iterable[Any], *, shortest: int = 10) -> Texts:
    """Unique texts that are long enough; duplicates are found by hash."""
    seen: set[bytes] = set()
    texts: list[str] = []
    short = repeated = 0
    for value in values:
        text = clean(value)
        if len(text) <= shortest:
            short += 1
            continue
        key = hash_of(text)
        if key in seen:
            repeated += 1
            continue
        seen.add(key)
        texts.append(text)
    return Texts(texts=texts, short=short, repeated=repeated)


def clean(value: Any) -> str:
    """A value as single-line text."""
    # Tokenizers reject lone surrogates, which JSON may hold.
    return " ".join(str("" if value is None else value).split()).encode("utf-8", "replace").decode("utf-8")


def check_enough(found: Texts, where: str) -> None:
    """Raise UsageError if there are fewer than ten examples."""
    if len(found.texts) < FEWEST:
        raise UsageError(
            f"{where}: {found}: at least {FEWEST} examples are needed",
            fix="add more text, one example per line; --min-characters sets the shortest",
        )


def split(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Training and validation, at least one text each. The side depends on a text's hash only.

    Raises:
        UsageError: an invalid share.
    """
    if not 0 < share < 1:
        raise UsageError(f"--val-share {share}: expected a share between 0 and 1", fix="--val-share 0.05")
    count = min(max(1, round(share * len(texts))), len(texts) - 1)
    kept_back = set(sorted(range(len(texts)), key=lambda number: hash_of(texts[number]))[:count])
    return (
        [text for number, text in enumerate(texts) if number not in kept_back],
        [texts[number] for number in sorted(kept_back)],
    )


def without(texts: Sequence[str], others: Sequence[str]) -> list[str]:
    """The texts that are not among the others."""
    known = {hash_of(text) for text in others}
    return [text for text in texts if hash_of(text) not in known]


def sources_of(path: Path) -> list[Source]:
    """Text sources behind a path."""
    found = open_data([path])
    if found[0].kind != "aligned":
        return found
    # Two files named like a parallel corpus are two texts here.
    return [source for file in found[0].files for source in open_data([file])]


def _column(chunk: Chunk, source: Source, asked: str | None) -> str:
    names = list(chunk.columns)
    if source.kind == "txt":
        return names[0]
    if asked is not None:
        if asked in names:
            return asked
        raise UsageError(
            f"{chunk.path} has no column {asked!r}; it has {', '.join(map(repr, names))}", fix="--text-column NAME"
        )
    lower = {name.lower().strip(): name for name in reversed(names)}
    for usual in COLUMNS:
        if usual in lower:
            return lower[usual]
    if len(names) == 1:
        return names[0]
    raise UsageError(
        f"{chunk.path}: cannot find the text column among {', '.join(map(repr, names))}", fix="--text-column NAME"
    )


def _is_name(cell: str, source: Source) -> bool:
    """Whether the header cell is surely a name rather than the first text."""
    return source.kind not in WRITTEN or cell.lower().strip() in COLUMNS or is_header([cell])


def hash_of(text: str) -> bytes:
    """Hash of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def corpus(config: Any, say: Callable[[str], None]) -> tuple[list[str], list[str]]:
    """Texts for training and validation: of files, or the built-in ones. Without ``val``, a share is held out.

    Raises:
        UsageError: too few texts, or unreadable files.
    """
    where = ", ".join(config.data) or "the built-in text"
    read = partial(read_texts, column=config.text_column, shortest=config.min_characters)
    found = read(config.data) if config.data else keep(travel_notes(), shortest=config.min_characters)
    check_enough(found, where)
    for format_, rows in found.formats.items():
        say(f"{where}: {format_}, {rows:,} rows")
    for remark in found.remarks[:5]:
        say(f"note: {remark}")
    if config.val:
        validation = read(config.val).texts
        training = without(found.texts, validation)
        check_enough(replace(found, texts=training), f"{where}, without {', '.join(config.val)}")
    else:
        training, validation = split(found.texts, config.val_share)
    say(f"{where}: {found}; {len(training):,} for training, {len(validation):,} for validation")
    return training, validation
