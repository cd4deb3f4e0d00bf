"""Stream texts larger than memory: a sample, and masked batches."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.language.blocks import SPREAD, Masking, blocks_for
from stayfinite.recipes.language.texts import (
    Reading,
    Texts,
    check_enough,
    clean,
    hash_of,
    read_texts,
    sources_of,
    split,
    without,
)
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.batching import Padding
from stayfinite.recipes.seq2seq.tokenizers import pieces
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.loading import SAMPLE, Looked, PassedOver, Say, Streamed, look, opened, refuse_cut

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

    config: Any
    tokenizer: Any
    masking: Masking
    batch_size: int
    held: frozenset[bytes]
    """Hashes of validation texts, which are never trained on."""

    def __call__(self, rows: Sequence[str], chance: random.Random) -> Iterator[Mapping[str, Tensor]]:
        texts = [
            text
            for text in map(clean, rows)
            if len(text) > self.config.min_characters and hash_of(text) not in self.held
        ]
        blocks = blocks_for(texts, self.tokenizer, self.config.block_size, self.config.pack)
        lengths = blocks.lengths
        order = sorted(range(len(blocks)), key=lengths.__getitem__)
        groups = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        chance.shuffle(groups)
        padding = Padding(pad=self.tokenizer.pad_token_id)
        for group in groups:
            yield padding([self.masking(blocks[number], chance.getrandbits(62)) for number in group])


def sample_of(
    files: Sequence[Source], column: str | None, shortest: int, most: int = SAMPLE
) -> tuple[list[str], Looked]:
    """Unique texts from the beginnings of files, the same on every rank, and a summary.

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
    return list(kept.values()), found


class StreamedCorpus(Streamed[str]):
    """Text files read on demand."""

    def loader(
        self, config: Any, tokenizer: Any, masking: Masking, place: Place, say: Say, *, batch_size: int
    ) -> StreamLoader:
        """The batches of this process."""
        make = MaskedPool(
            config=config, tokenizer=tokenizer, masking=masking, batch_size=batch_size,
            held=frozenset(map(hash_of, self.validation)),
        )  # fmt: skip
        reader = TextReader(column=config.text_column, tell=place.first)
        return self.loaded(config, reader, make, place, say, pool=batch_size * SPREAD)


def streamed_corpus(config: Any, files: Sequence[Source], say: Say) -> StreamedCorpus:
    """Sample the files without reading them whole.

    Raises:
        UsageError: too little text.
        LoaderFailed: a file is truncated.
    """
    texts, found = sample_of(files, config.text_column, config.min_characters)
    where = ", ".join(config.data)
    if config.val:
        validation = read_texts(config.val, column=config.text_column, shortest=config.min_characters).texts
        training = without(texts, validation)
    else:
        check_enough(Texts(texts=texts), f"{where}: the sample")
        training, validation = split(texts, config.val_share)
    check_enough(Texts(texts=training), f"{where}: the sample")
    streamed = StreamedCorpus(
        files=files, training=training, validation=validation, characters=found.characters, size=len
    )
    streamed.introduce(config.data, found.words, "texts", say)
    return streamed
