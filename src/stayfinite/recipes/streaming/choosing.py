"""Whether data is streamed, and which files and data sets its names stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from stayfinite.errors import UsageError
from stayfinite.readers.data.beginnings import LARGE, text_size
from stayfinite.readers.data.chunk import Source
from stayfinite.readers.data.hub_rows import dataset_source, hub_source, is_hub
from stayfinite.readers.data.opening import matching

Streaming = Literal["auto", "on", "off"]
"""Whether data is read as it is needed; `auto` does so where it would need gigabytes of memory."""


GIVEN = "hub:(object)"
"""The name of an object of the `datasets` library; no data set of a hub has it."""


def given(names: tuple[str, ...], dataset: Any) -> tuple[str, ...]:
    """The names of the data, with that of an object where there is one."""
    return names if dataset is None or GIVEN in names else (*names, GIVEN)


def opened(names: Sequence[str], open_files: Callable[[list[str]], list[Source]], dataset: Any = None) -> list[Source]:
    """What these names stand for: data sets of a hub, an object, files.

    Arguments:
        open_files: finds the files behind the names that are paths.
        dataset: the object that `GIVEN` stands for.

    Raises:
        UsageError: there is no such file or data set.
    """
    paths = [name for name in names if not is_hub(name)]
    sets = [
        dataset_source(dataset, name) if name == GIVEN and dataset is not None else hub_source(name)
        for name in names
        if is_hub(name)
    ]
    return [*sets, *(open_files(paths) if paths else ())]


def streams(asked: Streaming, files: Sequence[Source]) -> bool:
    """Whether these files are streamed.

    Raises:
        UsageError: a data set of a hub is not to be streamed.
    """
    hub = [str(file.path) for file in files if file.kind == "hub"]
    if hub and asked == "off":
        raise UsageError(f"--stream off: {hub[0]} can only be streamed", fix="leave --stream out, or download it first")
    if asked != "auto":
        return asked == "on" and bool(files)
    return text_size(files) > LARGE or bool(hub)


def refuse_missing(names: Sequence[str], fix: str, *, hub: bool = True) -> None:
    """Look whether there are such files.

    Arguments:
        hub: whether a data set of a hub will do.

    Raises:
        UsageError: there is none of a name.
    """
    for name in names:
        if not (hub and is_hub(name)) and not matching(name):
            raise UsageError(f"{name}: no such file or directory", fix=fix)
