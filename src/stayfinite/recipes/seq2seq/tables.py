"""Turn tables into pairs, guessing columns from names and first rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.inspection.data.column_names import SPLITS_BY, plain
from stayfinite.inspection.data.headers import WRITTEN, has_header
from stayfinite.inspection.data.roles import Roles, roles_of
from stayfinite.inspection.data.values import as_text
from stayfinite.readers.data.chunk import Broken, Chunk, Source
from stayfinite.readers.data.opening import told
from stayfinite.readers.data.shapes import Shape, shape_of, sides
from stayfinite.recipes.seq2seq.built_in import Pair

SHOWN = 30
"""Characters of a cell shown in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Column names; None to guess."""

    source: str | None = None
    target: str | None = None
    group: str | None = None

    @classmethod
    def of(cls, config: Any) -> Columns:
        """The columns named in a recipe's settings."""
        return cls(source=config.source, target=config.target, group=config.group)

    @property
    def names(self) -> tuple[str | None, str | None, str | None]:
        return self.source, self.target, self.group

    def __str__(self) -> str:
        roles = ("source", "target", "split by")
        return ", ".join(f"{role} = {name}" for role, name in zip(roles, self.names, strict=True) if name)


Wrong = Callable[[Path, Sequence[Broken]], None]
"""Receives the broken rows of a file; raises, or they are skipped."""


def pairs_of_table(
    source: Source, columns: Columns, usual: Columns, wrong: Wrong, say: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[list[Pair], int]]:
    """Pairs of a table, some thousands at a time, with the bytes read so far.

    Arguments:
        usual: column names to use if none is given and the table has them.

    Raises:
        UsageError: no such columns.
    """
    read: _Table | None = None
    rows = 0
    for chunk in source.chunks():
        wrong(source.path, chunk.broken)
        if not any(chunk.columns.values()):
            continue
        if read is None:
            read = _Table.begun(source, chunk.columns, columns, usual)
        pairs = read.pairs(source.path, chunk, wrong)
        rows += len(pairs)
        yield pairs, chunk.done
    if read is not None:
        say(f"{source.path.name}: {read.format}, {rows:,} rows: {read.columns}")
    for remark in (*source.remarks, source.encoding):
        if remark:
            say(remark)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """How rows of a file become pairs."""

    format: str
    columns: Columns
    shape: Shape | None
    """Known row format that source and target are built from, if any."""

    @classmethod
    def begun(cls, source: Source, table: Mapping[str, list[Any]], asked: Columns, usual: Columns) -> _Table:
        """From the first rows of a file. Raises UsageError if a column is missing or ambiguous."""
        wanted = (asked.source, asked.target)
        shape = None if any(wanted) or {usual.source, usual.target} & {*table} else shape_of(table)
        if shape is None and not any((*wanted, asked.group)):
            refuse_without_header(source, table, (usual.source, usual.target), "--source NAME --target NAME")
        if shape is None:
            known = known_columns(source.path, table, asked, usual)
        else:
            target = shape.target or "the last answer"
            known = Columns(source=" + ".join(shape.source), target=target, group=_group(source.path, table, asked))
        return cls(format=told(source, table), columns=known, shape=shape)

    def pairs(self, path: Path, chunk: Chunk, wrong: Wrong) -> list[Pair]:
        """Pairs of some rows; an invalid row gives an empty pair."""
        blank = [None] * len(chunk.lines)
        source, target, group = (chunk.columns.get(name, blank) if name else blank for name in self.columns.names)
        if self.shape is not None:
            made = sides(self.shape, chunk.columns, chunk.lines)
            wrong(path, made.broken)
            source, target = made.source, made.target
        return [Pair(*map(as_text, row)) for row in zip(source, target, group, strict=True)]


def refuse_without_header(
    source: Source, table: Mapping[str, list[Any]], usual: Iterable[str | None], flags: str
) -> None:
    """Refuse a table whose first row may be data, if no columns are named.

    Arguments:
        usual: names that prove a header, besides common ones.
        flags: that name the columns.

    Raises:
        UsageError: unclear whether the first row is a header.
    """
    cells = list(table)
    if source.kind in WRITTEN and not set(cells).intersection(usual) and not has_header(table):
        shown = ", ".join(repr(cell if len(cell) <= SHOWN else cell[:SHOWN] + "...") for cell in cells[:4])
        raise UsageError(
            f"{source.path}: the first row ({shown}) may be a header or data",
            fix=f"if it is a header, name the columns: {flags}; if not, add a header such as source,target",
        )


def refuse_broken(path: Path, broken: Sequence[Broken], fix: str | None = None) -> None:
    """Stop at broken rows: half a row would be a wrong pair."""
    if broken:
        more = f" (and {len(broken) - 1} more like it)" if len(broken) > 1 else ""
        raise UsageError(
            f"{path}:{broken[0].line}: {broken[0].why}{more}",
            fix=fix or f"stayfinite check --data {path} lists all of them",
        )


def known_columns(path: Path, table: Mapping[str, list[Any]], asked: Columns, usual: Columns) -> Columns:
    """Columns of a table: named, usual, or guessed.

    Raises:
        UsageError: no such column, or ambiguous columns.
    """
    source = _meant(asked.source, table) or (usual.source if usual.source in table else None)
    target = _meant(asked.target, table) or (usual.target if usual.target in table else None)
    roles = roles_in(path, table, Columns(source=source, target=target, group=asked.group))
    source, target = source or (roles.source[0] if roles.source else None), target or roles.target
    if source is None or target is None or source == target:
        raise UsageError(
            f"{path}: cannot find the source and target columns",
            fix=f"--source NAME --target NAME; the columns are {', '.join(table)}",
        )
    return Columns(source=source, target=target, group=_group(path, table, asked))


def roles_in(path: Path, table: Mapping[str, list[Any]], named: Columns) -> Roles:
    """Roles of the columns of a table, by its first rows. Raises UsageError with its path."""
    first = {name: values[:500] for name, values in table.items()}
    try:
        return roles_of(first, source=named.source, target=named.target, group=named.group)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", fix=error.fix) from error


def _meant(name: str | None, table: Mapping[str, list[Any]]) -> str | None:
    """The column with this name; `en` also matches `translation.en`."""
    return f"translation.{name}" if name not in table and f"translation.{name}" in table else name


def _group(path: Path, table: Mapping[str, list[Any]], asked: Columns) -> str | None:
    if asked.group is not None and asked.group not in table:
        raise UsageError(f"{path}: no column {asked.group!r}", fix=f"choose one of: {', '.join(table)}")
    named = (name for name in table if plain(name) == "group" or SPLITS_BY.match(plain(name)))
    return asked.group or next(named, None)
