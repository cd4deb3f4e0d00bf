"""Tables into pairs: which column is what, guessed from names and first rows where nobody says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.inspection.data.column_names import SPLITS_BY, plain
from stayfinite.inspection.data.headers import WRITTEN, has_header
from stayfinite.inspection.data.roles import roles_of
from stayfinite.inspection.data.values import as_text
from stayfinite.readers.data.chunk import Broken, Source
from stayfinite.readers.data.opening import open_data
from stayfinite.recipes.seq2seq.built_in import Pair

SHOWN = 30
"""Characters of a cell that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns; None to guess."""

    source: str | None = None
    target: str | None = None
    group: str | None = None


def pairs_of_tables(paths: Sequence[str], columns: Columns, say: Callable[[str], None], usual: Columns) -> list[Pair]:
    """The pairs of all these tables, in their order.

    Arguments:
        columns: which are what.
        usual: names that are taken where nothing was asked for and the table has them.

    Raises:
        UsageError: a file cannot be read to its end, or has no such columns.
    """
    pairs: list[Pair] = []
    for source in open_data(paths):
        known: Columns | None = None
        for chunk in source.chunks():
            refuse_broken(source.path, chunk.broken)
            if not any(chunk.columns.values()):
                continue
            if known is None:
                if not any((columns.source, columns.target, columns.group)):
                    refuse_without_header(
                        source, chunk.columns, (usual.source, usual.target), "--source NAME --target NAME"
                    )
                known = known_columns(source.path, chunk.columns, columns, usual)
                if known != columns:
                    say(f"{source.path.name}: {_told(known)}")
            pairs += _rows(chunk.columns, known)
        for remark in (*source.remarks, source.encoding):
            if remark:
                say(remark)
    return pairs


def refuse_without_header(
    source: Source, table: Mapping[str, list[Any]], usual: Iterable[str | None], flags: str
) -> None:
    """Where nobody says which column is what, and the first row may be a row like any other, it would be lost.

    Arguments:
        usual: names that prove it, beside those that everybody uses.
        flags: that say which column is what.

    Raises:
        UsageError: it is not sure that the first row of this table holds names.
    """
    cells = list(table)
    if source.kind in WRITTEN and not set(cells).intersection(usual) and not has_header(table):
        shown = ", ".join(repr(cell if len(cell) <= SHOWN else cell[:SHOWN] + "...") for cell in cells[:4])
        raise UsageError(
            f"{source.path}: the first row ({shown}) may be names of columns or a row like the others: no usual name "
            "is among them",
            fix=f"where they are names, say which is which: {flags}; where they are not, put a line of names above it, "
            "such as source,target",
        )


def refuse_broken(path: Path, broken: Sequence[Broken], fix: str | None = None) -> None:
    """Half a row would be a wrong pair: say where, and stop."""
    if broken:
        more = f" (and {len(broken) - 1} more like it)" if len(broken) > 1 else ""
        raise UsageError(
            f"{path}:{broken[0].line}: {broken[0].why}{more}",
            fix=fix or f"stayfinite check --data {path} lists all of them",
        )


def known_columns(path: Path, table: Mapping[str, list[Any]], asked: Columns, usual: Columns) -> Columns:
    """The columns of this table: those that were asked for, the usual ones, the rest guessed.

    Raises:
        UsageError: there is no such column, or which is which cannot be told.
    """
    source = asked.source or (usual.source if usual.source in table else None)
    target = asked.target or (usual.target if usual.target in table else None)
    first = {name: values[:500] for name, values in table.items()}
    try:
        roles = roles_of(first, source=source, target=target, group=asked.group)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", fix=error.fix) from error
    source, target = source or (roles.source[0] if roles.source else None), target or roles.target
    if source is None or target is None or source == target:
        raise UsageError(
            f"{path}: which column is the source and which the target cannot be told from their names",
            fix=f"--source NAME --target NAME; the columns are {', '.join(table)}",
        )
    group = asked.group or next((name for name in table if _groups(name)), None)
    return Columns(source=source, target=target, group=group)


def _groups(name: str) -> bool:
    return plain(name) == "group" or bool(SPLITS_BY.match(plain(name)))


def _told(columns: Columns) -> str:
    named = {"source": columns.source, "target": columns.target, "split by": columns.group}
    return ", ".join(f"{role} = {name}" for role, name in named.items() if name)


def _rows(table: Mapping[str, list[Any]], columns: Columns) -> list[Pair]:
    empty = [None] * len(next(iter(table.values())))
    names = (columns.source, columns.target, columns.group)
    sides = (table.get(name, empty) if name else empty for name in names)
    return [Pair(*(as_text(value) for value in row)) for row in zip(*sides, strict=True)]
