"""Rows of parquet and Arrow files, of `datasets` objects and of hub datasets; images and audio are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.chunk import CHUNK_ROWS, Broken, Chunk, Source, unnested


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


HUB = "hub:"
_NAME = lazy_regex(r"hub:(?P<name>[\w.-]+(?:/[\w.-]+)?)(?::(?P<part>[\w.-]+))?(?:@(?P<split>[\w.\[\]:%+-]+))?")
READABLE = (str, int, float, list, Mapping)
"""Types that a column may hold; images and audio are skipped."""


def is_hub(name: str) -> bool:
    """Whether this is a hub name, not a path."""
    return name.startswith(HUB)


def hub_source(name: str) -> Source:
    """The rows of a hub dataset, `hub:owner/name` or `hub:owner/name:tr@train`; only what is read is downloaded.

    Raises UsageError if there is no such dataset or the hub does not answer, MissingExtra without `datasets`.
    """
    named = _NAME.fullmatch(name)
    if named is None:
        raise UsageError(f"{name}: expected hub:OWNER/NAME, hub:OWNER/NAME:CONFIGURATION or hub:OWNER/NAME@SPLIT")
    try:
        import datasets
    except ImportError:
        raise MissingExtra(f"{name}: `datasets` is not installed", fix="pip install datasets") from None
    try:
        found = datasets.load_dataset(
            named["name"], named["part"], split=named["split"] or "train", streaming=True
        )  # fmt: skip
    except Exception as error:  # errors of `datasets`, of its HTTP client and of file parsers
        words = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise UsageError(
            f"cannot open {name}: {words}", fix="check the name, the split and the network; or download it first"
        ) from error
    return dataset_source(found, name)


def dataset_source(dataset: Any, name: str = "dataset") -> Source:
    """The rows of a `datasets` object, streaming or not."""
    info = getattr(dataset, "info", None)
    size = getattr(info, "dataset_size", None) or getattr(info, "size_in_bytes", None)
    size = size or getattr(getattr(dataset, "data", None), "nbytes", 0) or 0  # created in memory: the size of its table
    source = Source(path=Path(name), kind="hub", size=int(size), chunks=lambda: iter(()))
    source.chunks = partial(dataset_chunks, source, dataset)
    return source


def dataset_chunks(source: Source, dataset: Any) -> Iterator[Chunk]:
    """Yield its rows in chunks of a few thousand."""
    number = 0
    try:
        rows = len(dataset)
    except TypeError:
        rows = getattr(next(iter((getattr(dataset.info, "splits", None) or {}).values()), None), "num_examples", 0) or 0
    for batch in dataset.iter(batch_size=CHUNK_ROWS):
        columns = {name: list(values) for name, values in batch.items() if _is_readable(values)}
        count = len(next(iter(batch.values()), ()))
        lines = list(range(number + 1, number + count + 1))
        number += count
        done = source.size * number // rows if rows else 0
        yield Chunk(path=source.path, columns=unnested(columns), lines=lines, done=done)


def _is_readable(values: Any) -> bool:
    first = next((value for value in values if value is not None), None)
    return first is None or isinstance(first, READABLE)
