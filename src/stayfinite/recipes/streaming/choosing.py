"""Whether to stream, and which files and datasets the names refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from stayfinite.errors import UsageError
from stayfinite.readers.data.arrow_rows import dataset_source, hub_source, is_hub
from stayfinite.readers.data.chunk import Source
from stayfinite.readers.data.opening import LARGE, matching, text_size

Streaming = Literal["auto", "on", "off"]
"""`auto` streams data that would need gigabytes of memory."""


GIVEN = "hub:(object)"
"""Name for a `datasets` object passed in; not a valid hub name."""


def given(names: tuple[str, ...], dataset: Any) -> tuple[str, ...]:
    """The names of the data, plus that of the object if there is one."""
    return names if dataset is None or GIVEN in names else (*names, GIVEN)


def opened(names: Sequence[str], open_files: Callable[[list[str]], list[Source]], dataset: Any = None) -> list[Source]:
    """Open hub datasets, the object, and files by name.

    Arguments:
        open_files: opens names that are paths.
        dataset: the object named `GIVEN`.

    Raises:
        UsageError: no such file or dataset.
    """
    paths = [name for name in names if not is_hub(name)]
    sets = [
        dataset_source(dataset, name) if name == GIVEN and dataset is not None else hub_source(name)
        for name in names
        if is_hub(name)
    ]
    return [*sets, *(open_files(paths) if paths else ())]


def streams(asked: Streaming, files: Sequence[Source]) -> bool:
    """Whether to stream these files. Raises UsageError if streaming is off for a hub dataset."""
    hub = [str(file.path) for file in files if file.kind == "hub"]
    if hub and asked == "off":
        raise UsageError(f"--stream off: {hub[0]} can only be streamed", fix="leave --stream out, or download it first")
    if asked != "auto":
        return asked == "on" and bool(files)
    return text_size(files) > LARGE or bool(hub)


def refuse_missing(names: Sequence[str], fix: str, *, hub: bool = True) -> None:
    """Check that the files exist.

    Arguments:
        hub: allow hub datasets.

    Raises:
        UsageError: not found.
    """
    for name in names:
        if not (hub and is_hub(name)) and not matching(name):
            raise UsageError(f"{name}: no such file or directory", fix=fix)
