"""Rows of parquet and Arrow files, through pyarrow; binary columns (images, audio) are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.chunk import CHUNK_ROWS, Broken, Chunk, Source
from stayfinite.readers.data.nesting import unnested


def parquet_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of a parquet file."""
    arrow = _pyarrow(source.path)
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(source.path)
        names = [field.name for field in file.schema_arrow if _readable(arrow, field.type)]
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(source.path, "parquet", error) from error
    with file:
        rows = max(1, file.metadata.num_rows)
        yield from _chunks(source, arrow, file.iter_batches(batch_size=CHUNK_ROWS, columns=names), rows=rows)


def arrow_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of an Arrow IPC file or stream, such as those of `datasets`."""
    arrow = _pyarrow(source.path)
    import pyarrow.ipc

    try:
        with arrow.memory_map(str(source.path)) as mapped:
            try:
                file = pyarrow.ipc.open_file(mapped)
                batches = (file.get_batch(number) for number in range(file.num_record_batches))
            except arrow.ArrowInvalid:
                mapped.seek(0)
                batches = iter(pyarrow.ipc.open_stream(mapped))
            yield from _chunks(source, arrow, batches, tell=mapped.tell)
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(source.path, "arrow", error) from error


def _chunks(source: Source, arrow: Any, batches: Iterator[Any], *, rows: int = 0, tell: Any = None) -> Iterator[Chunk]:
    number = 0
    while True:
        try:
            batch = next(batches)
            if tell is not None:
                _sound(arrow, batch)
        except StopIteration:
            return
        except (arrow.ArrowException, OSError) as error:
            broken = [Broken(number + 1, f"reading stopped here: {str(error)[:120]}", ends=True)]
            yield Chunk(path=source.path, columns={}, lines=[], broken=broken, done=source.size)
            return
        names = [field.name for field in batch.schema if _readable(arrow, field.type)]
        for start in range(0, max(1, batch.num_rows), CHUNK_ROWS):
            part = batch.slice(start, CHUNK_ROWS)
            columns = {name: _values(arrow, part.column(part.schema.get_field_index(name))) for name in names}
            lines = list(range(number + 1, number + part.num_rows + 1))
            number += part.num_rows
            done = source.size * number // rows if rows else tell()
            yield Chunk(path=source.path, columns=unnested(columns), lines=lines, done=done)


def _sound(arrow: Any, batch: Any) -> None:
    """Raise if offsets point outside the file, which would crash the reader."""
    for column in batch.columns:
        # Read as bytes: invalid UTF-8 is reported later, by row.
        if arrow.types.is_string(column.type):
            column = column.view(arrow.binary())
        elif arrow.types.is_large_string(column.type):
            column = column.view(arrow.large_binary())
        column.validate(full=True)


def _values(arrow: Any, column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        kind = arrow.large_binary() if arrow.types.is_large_string(column.type) else arrow.binary()
        raw = column.cast(kind).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw]


def _readable(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    if types.is_struct(kind):
        return all(_readable(arrow, kind.field(number).type) for number in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        return any(check(inner) for check in (types.is_integer, types.is_struct, types.is_string))
    if types.is_dictionary(kind):
        return _readable(arrow, kind.value_type)
    checks = (
        types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean, types.is_decimal,
        types.is_null, getattr(types, "is_string_view", types.is_string),
    )  # fmt: skip
    return any(check(kind) for check in checks)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra.of("pyarrow", extra="data", what_for=f"reading {path.name}") from None
    return pyarrow


def _unreadable(path: Path, kind: str, error: Exception) -> UsageError:
    first = (str(error).splitlines() or [""])[0][:160]
    return UsageError(f"{path} is not valid {kind}: {first}", fix="download or write the file again")
