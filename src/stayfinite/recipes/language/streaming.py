"""Texts that do not fit memory: a sample of them to start from, and a stream of masked batches."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from torch import Tensor
from torch.utils.data import get_worker_info

from stayfinite.errors import LoaderFailed, UsageError
from stayfinite.readers.data.beginnings import LARGE, text_size
from stayfinite.readers.data.chunk import Broken, Source
from stayfinite.readers.data.hub_rows import hub_source, is_hub
from stayfinite.readers.data.opening import TOLD
from stayfinite.recipes.language.blocks import Packing, blocks_of, reserved_ids, tokenized
from stayfinite.recipes.language.masking import Masking
from stayfinite.recipes.language.order import SPREAD
from stayfinite.recipes.language.texts import Reading, clean, hash_of, sources_of
from stayfinite.recipes.seq2seq.batching import Padding
from stayfinite.recipes.seq2seq.tokenizers import pieces

Streaming = Literal["auto", "on", "off"]
"""Whether data is read as it is needed; `auto` does so where it would need gigabytes of memory."""
LONGEST = 100_000
"""Characters from which on a text is taken in pieces, cut at spaces: a tokenizer's memory grows with the text."""
SAMPLE = 16 << 20
"""Characters of the sample that tokenizer, validation and number of steps come from."""
SAMPLED_FILES = 16


def text_files(data: Sequence[str]) -> list[Source]:
    """The files, and data sets of a hub, that these names stand for."""
    return [source for name in data for source in ([hub_source(name)] if is_hub(name) else sources_of(Path(name)))]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReader:
    """The texts of a file, long ones in pieces.

    Arguments:
        column: that holds the text; guessed when left out.
        tell: whether this process tells of rows that cannot be read.
    """

    column: str | None = None
    tell: bool = True

    def __call__(self, source: Source) -> Iterator[str]:
        """Its texts; stops with `LoaderFailed` where the file is cut."""
        told = count(1)

        def broken(path: Path, place: Broken) -> None:
            refuse_cut(path, place)
            worker = get_worker_info()
            if self.tell and (worker is None or worker.id == 0) and next(told) <= 3:
                sys.stderr.write(f"{path}:{place.line}: row skipped: {place.why}\n")

        for value in Reading(self.column, broken).texts(source):
            text = "" if value is None else str(value)
            if len(text) <= LONGEST:
                yield text
            else:
                yield from pieces(text, LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedPool:
    """Turns some texts into masked batches of blocks of like length."""

    tokenizer: Any
    masking: Masking
    padding: Padding
    batch_size: int
    block_size: int
    packing: Packing
    shortest: int
    held: frozenset[bytes]
    """Hashes of the texts that validate; they are never trained on."""

    @property
    def rows(self) -> int:
        """Texts that make a pool: enough batches to sort rows of like length together."""
        return self.batch_size * SPREAD

    def __call__(self, rows: Sequence[str], chance: random.Random) -> Iterator[Mapping[str, Tensor]]:
        texts = [text for text in map(clean, rows) if len(text) > self.shortest and hash_of(text) not in self.held]
        found = tokenized(texts, self.tokenizer, reserved_ids(self.tokenizer))
        blocks = blocks_of(found, self.block_size, packing=self.packing, end=self.tokenizer.eos_token_id)
        lengths = blocks.lengths
        order = sorted(range(len(blocks)), key=lengths.__getitem__)
        groups = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        chance.shuffle(groups)
        for group in groups:
            yield self.padding([self.masking(blocks[number], chance.getrandbits(62)) for number in group])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The beginnings of some files, spread over all of them."""

    texts: list[str]
    """Each once, those that are long enough."""
    characters: int | None
    """Approximate size of all files, if known."""
    words: str
    """How they are written, and how much was looked at."""


def refuse_cut(path: Path, place: Broken) -> None:
    """Stop at a file of which the rest cannot be read; single rows that cannot are passed over.

    Raises:
        LoaderFailed: this is such a file.
    """
    if place.ends:
        raise LoaderFailed(
            f"{path}:{place.line}: {place.why}", code="shard-cut",
            fix=f"download or save {path.name} again, then resume with the same command",
        )  # fmt: skip


def sample_of(files: Sequence[Source], column: str | None, shortest: int, most: int = SAMPLE) -> Sample:
    """Read the beginnings of files, all alike on every rank.

    Raises:
        UsageError: a file cannot be read, or there is no text.
        LoaderFailed: a file is cut.
    """
    stride = max(1, -(-len(files) // SAMPLED_FILES))
    chosen = files[::stride]
    kept: dict[bytes, str] = {}
    seen = done = 0
    for source in chosen:
        reading = Reading(column, refuse_cut)
        characters, stop = 0, -1
        for value in reading.texts(source):
            # What is counted ends with a chunk, as do the bytes that it took.
            if characters > most // len(chosen):
                stop = reading.done if stop < 0 else stop
                if reading.done != stop:
                    break
            elif len(text := clean(value)[:LONGEST]) > shortest:
                kept.setdefault(hash_of(text), text)
            characters += len(str(value))
        seen, done = seen + characters, done + (stop if stop >= 0 else reading.done)
    size = sum(file.size for file in files)
    if not kept:
        raise UsageError(
            f"{files[0].path}: no text of more than {shortest} characters in the sample", fix="check the data"
        )
    kinds = ", ".join(sorted({TOLD[file.kind] for file in files}))
    return Sample(
        texts=list(kept.values()),
        characters=size * seen // done if size and done else None,
        words=(
            f"{len(files):,} files ({kinds}), {size / 2**30:.2f} GiB; sampled {len(kept):,} texts from "
            f"{len(chosen):,} of them"
        ),
    )
