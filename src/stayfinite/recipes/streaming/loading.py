"""A recipe's stream: whether there is one, of which files; a sample to start from, and batches read on demand."""

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from torch.utils.data import get_worker_info

from stayfinite.errors import LoaderFailed, UsageError
from stayfinite.readers.data.arrow_rows import dataset_source, hub_source, is_hub
from stayfinite.readers.data.chunk import Broken, Source
from stayfinite.readers.data.opening import LARGE, TOLD, matching, text_size
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.records import write_record
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.stream import Bounds, Make, Reader, Rows, Stream

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


FILE = "data.json"
SHOWN = 3


def mark_of(files: Sequence[Source], *more: object) -> str:
    """A hash of files, sizes and settings."""
    listed = [[str(file.path), file.size] for file in files]
    return hashlib.blake2b(json.dumps([listed, [str(each) for each in more]]).encode(), digest_size=16).hexdigest()


def require_same_files(files: Sequence[Source], run: Path) -> None:
    """Compare the files with those the run was started with.

    Raises:
        UsageError: one is missing, changed or new, so that the saved position is meaningless.
    """
    try:
        before = json.loads((run / FILE).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    now = {str(file.path): file.size for file in files}
    gone = [path for path in before if path not in now]
    changed = [f"{path} ({before[path]:,} bytes, now {now[path]:,})" for path in before if now.get(path, -1) >= 0
               and now[path] != before[path]]  # fmt: skip
    new = [path for path in now if path not in before]
    for found, words in ((gone, "gone"), (changed, "changed"), (new, "new")):
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise UsageError(
                f"{run} was started with other files. {words}: {', '.join(found[:SHOWN])}{more}",
                fix="restore the files to resume; --output-dir NEW to start over with these",
            )


def note_files(files: Sequence[Source], run: Path) -> None:
    """Record the files of a run."""
    run.mkdir(parents=True, exist_ok=True)
    write_record(run / FILE, {"version": 1, "files": {str(file.path): file.size for file in files}})


Row = TypeVar("Row")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader(ABC, Generic[Row]):
    """Reads the rows of a file.

    Arguments:
        columns: of the recipe.
        tell: whether this process reports skipped rows.
    """

    columns: Any
    tell: bool = True

    def __call__(self, source: Source) -> Iterator[Row]:
        """Yield the rows. Raises LoaderFailed if the file is truncated."""
        return (row for row, _ in self.read(source))

    @abstractmethod
    def read(self, source: Source) -> Iterator[tuple[Row, int]]:
        """Rows with the bytes read so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed(Generic[Row]):
    """Files read on demand."""

    files: Sequence[Source]
    training: list[Row]
    """Sampled rows for the tokenizer and the first batch."""
    validation: list[Row]
    characters: int | None
    """Estimated total of all files."""
    size: Callable[[Row], int]
    """Characters of a row."""

    def batches(self, sampled: float, ranks: int, *, steps: int | None) -> int:
        """Estimated batches per epoch and rank.

        Arguments:
            sampled: batches that the sample makes on one rank.

        Raises:
            UsageError: neither the data size nor the number of steps is known.
        """
        if self.characters is not None:
            seen = sum(map(self.size, self.training))
            return max(1, round(sampled * self.characters / max(1, seen) / ranks))
        if steps is None:
            raise UsageError("the hub does not say how large the data is", fix="--max-steps N")
        return steps

    def loaded(self, config: Any, reader: Reader, make: Make, place: Place, say: Say, *, pool: int) -> StreamLoader:
        """The batches of this process.

        Arguments:
            config: has ``seed``, ``shuffle_rows`` and ``workers``.
            pool: rows batched together.
        """
        stream = Stream(
            rows=Rows(self.files, reader, seed=config.seed), make=make, pool=pool, seed=config.seed,
            bounds=Bounds(rows=config.shuffle_rows), size=self.size,
        )  # fmt: skip
        return StreamLoader(
            stream, data=mark_of(self.files, config.shuffle_rows, config.seed), rank=place.row_rank,
            ranks=place.row_ranks, workers=config.workers, pin=place.device.type == "cuda", say=say,
        )  # fmt: skip

    def introduce(self, names: Sequence[str], found: str, what: str, say: Say) -> None:
        """Say what was found in the sample."""
        say(f"{', '.join(names)}: {found}. Streaming the data (--stream off loads it into memory)")
        say(f"{len(self.validation):,} {what} for validation; duplicates are kept")


def steps_in_words(an_epoch: int, steps: int | None) -> str:
    """The estimated steps of a stream."""
    planned = "" if steps is None else f"; training takes {steps:,} steps (set --max-steps to change)"
    return f"about {an_epoch:,} steps per epoch{planned}"


SAMPLE = 16 << 20
"""Characters sampled for tokenizer, validation and number of steps."""
SAMPLED_FILES = 16
HELD = 1000
"""Sampled rows held out where each needs a generated answer."""


class Looked(NamedTuple):
    """Summary of the sample."""

    characters: int | None
    """Estimated total of all files; None if unknown."""
    words: str
    """Formats and sample size, in words."""


def look(
    files: Sequence[Source],
    read: Callable[[Source], Iterable[tuple[Any, int]]],
    keep: Callable[[Any], None],
    *,
    size: Callable[[Any], int],
    most: int = SAMPLE,
) -> Looked:
    """Read the beginnings of files, the same on every rank.

    Arguments:
        read: yields rows of a file with the bytes read so far.
        keep: receives each sampled row.
        size: of a row, in characters.
        most: characters in total.

    Raises:
        UsageError: a file is unreadable.
        LoaderFailed: a file is truncated.
    """
    stride = max(1, -(-len(files) // SAMPLED_FILES))
    chosen = files[::stride]
    seen = done = 0
    for source in chosen:
        characters, ended, stop = 0, 0, -1
        for row, ended in read(source):
            # Count up to the end of a chunk, as the byte positions do.
            if characters > most // len(chosen):
                stop = ended if stop < 0 else stop
                if ended != stop:
                    break
            else:
                keep(row)
            characters += size(row)
        seen, done = seen + characters, done + (stop if stop >= 0 else ended)
    whole = sum(file.size for file in files)
    kinds = ", ".join(sorted({TOLD[file.kind] for file in files}))
    return Looked(
        characters=whole * seen // done if whole and done else None,
        words=f"{len(files):,} files ({kinds}), {whole / 2**30:.2f} GiB; looked at the beginning of {len(chosen):,} of "
        "them",
    )


MOST = 3
"""Skipped rows reported per file."""


@dataclass
class PassedOver:
    """Reports the first skipped rows of a file.

    Arguments:
        tell: whether this process reports; among its workers only the first does.
    """

    tell: bool = True
    _told: int = field(default=0, init=False)

    def __call__(self, path: Path, place: Broken) -> None:
        """Skip a broken row. Raises LoaderFailed if nothing after it can be read."""
        refuse_cut(path, place)
        self.row(f"{path}:{place.line}: {place.why}")

    def row(self, words: str) -> None:
        worker = get_worker_info()
        if self.tell and self._told < MOST and (worker is None or worker.id == 0):
            self._told += 1
            sys.stderr.write(f"{words}: row skipped\n")


def refuse_cut(path: Path, place: Broken) -> None:
    """Raise LoaderFailed if the rest of the file cannot be read."""
    if place.ends:
        raise LoaderFailed(
            f"{path}:{place.line}: {place.why}", code="shard-cut",
            fix=f"download or write {path.name} again, then start again with the same command",
        )  # fmt: skip
