"""Rows of a `datasets` object, or of a hub dataset read as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.chunk import CHUNK_ROWS, Chunk, Source
from stayfinite.readers.data.nesting import unnested

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
        columns = {name: list(values) for name, values in batch.items() if _readable(values)}
        count = len(next(iter(batch.values()), ()))
        lines = list(range(number + 1, number + count + 1))
        number += count
        done = source.size * number // rows if rows else 0
        yield Chunk(path=source.path, columns=unnested(columns), lines=lines, done=done)


def _readable(values: Any) -> bool:
    first = next((value for value in values if value is not None), None)
    return first is None or isinstance(first, READABLE)
