"""Stream texts larger than memory: a sample, and masked batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.language.blocks import Packing, blocks_of, reserved_ids, tokenized
from stayfinite.recipes.language.masking import Masking
from stayfinite.recipes.language.order import SPREAD
from stayfinite.recipes.language.texts import Reading, clean, hash_of, sources_of
from stayfinite.recipes.seq2seq.batching import Padding
from stayfinite.recipes.seq2seq.tokenizers import pieces
from stayfinite.recipes.streaming.choosing import opened
from stayfinite.recipes.streaming.sampling import SAMPLE, look
from stayfinite.recipes.streaming.telling import PassedOver, refuse_cut

LONGEST = 100_000
"""Longer texts are split at spaces: a tokenizer's memory grows with the text."""


def text_files(data: Sequence[str], dataset: Any = None) -> list[Source]:
    """Sources for file names, hub datasets and the dataset object."""
    return opened(data, lambda paths: [source for path in paths for source in sources_of(Path(path))], dataset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReader:
    """Texts of a file, long ones in pieces.

    Arguments:
        column: text column; guessed by default.
        tell: whether this process reports unreadable rows.
    """

    column: str | None = None
    tell: bool = True

    def __call__(self, source: Source) -> Iterator[str]:
        """Yield the texts. Raises LoaderFailed if the file is truncated."""
        for value in Reading(self.column, PassedOver(tell=self.tell)).texts(source):
            text = "" if value is None else str(value)
            if len(text) <= LONGEST:
                yield text
            else:
                yield from pieces(text, LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedPool:
    """Turns texts into masked batches of blocks of similar length."""

    tokenizer: Any
    masking: Masking
    padding: Padding
    batch_size: int
    block_size: int
    packing: Packing
    shortest: int
    held: frozenset[bytes]
    """Hashes of validation texts, which are never trained on."""

    @property
    def rows(self) -> int:
        """Texts per pool: enough to batch similar lengths."""
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
    """Unique texts that are long enough."""
    characters: int | None
    """Approximate size of all files, if known."""
    words: str
    """Formats and sample size, in words."""


def sample_of(files: Sequence[Source], column: str | None, shortest: int, most: int = SAMPLE) -> Sample:
    """Read the beginnings of files, the same on every rank.

    Raises:
        UsageError: a file is unreadable, or has no text.
        LoaderFailed: a file is truncated.
    """
    kept: dict[bytes, str] = {}

    def read(source: Source) -> Iterator[tuple[Any, int]]:
        reading = Reading(column, refuse_cut)
        return ((value, reading.done) for value in reading.texts(source))

    def keep(value: Any) -> None:
        if len(text := clean(value)[:LONGEST]) > shortest:
            kept.setdefault(hash_of(text), text)

    found = look(files, read, keep, size=lambda value: len(str(value)), most=most)
    if not kept:
        raise UsageError(
            f"{files[0].path}: no text of more than {shortest} characters in the sample", fix="check the data"
        )
    return Sample(texts=list(kept.values()), characters=found.characters, words=found.words)
