"""Texts that do not fit memory: a sample of them to start from, and a stream of masked batches."""

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
"""Characters from which on a text is taken in pieces, cut at spaces: a tokenizer's memory grows with the text."""


def text_files(data: Sequence[str], dataset: Any = None) -> list[Source]:
    """The files, the data sets of a hub and the object that these names stand for."""
    return opened(data, lambda paths: [source for path in paths for source in sources_of(Path(path))], dataset)


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
        for value in Reading(self.column, PassedOver(tell=self.tell)).texts(source):
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


def sample_of(files: Sequence[Source], column: str | None, shortest: int, most: int = SAMPLE) -> Sample:
    """Read the beginnings of files, all alike on every rank.

    Raises:
        UsageError: a file cannot be read, or there is no text.
        LoaderFailed: a file is cut.
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
