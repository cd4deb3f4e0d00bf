"""Streamed corpus: a sample, batches, and an estimate of their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.language.blocks import Blocks
from stayfinite.recipes.language.masking import Masking
from stayfinite.recipes.language.streaming import MaskedPool, TextReader, sample_of
from stayfinite.recipes.language.texts import Texts, check_enough, hash_of, read_texts, split, without
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.batching import Padding
from stayfinite.recipes.streaming.files import require_same_files
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.loading import stream_loader
from stayfinite.recipes.streaming.sampling import batches_of_pass

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedCorpus:
    """Text files read on demand."""

    files: Sequence[Source]
    training: list[str]
    """Sampled texts for the tokenizer and the first batch."""
    validation: list[str]
    characters: int | None
    """Estimated total of all files."""

    def batches(self, blocks: Blocks, batch_size: int, ranks: int, *, steps: int | None) -> int:
        """Estimated batches per epoch and rank.

        Raises:
            UsageError: neither the data size nor the number of steps is known.
        """
        sampled = sum(map(len, self.training))
        return batches_of_pass(sampled, len(blocks) / batch_size, self.characters, ranks, steps=steps)

    def loader(
        self, config: Any, tokenizer: Any, masking: Masking, place: Place, say: Say, *, batch_size: int
    ) -> StreamLoader:
        """The batches of this process."""
        make = MaskedPool(
            tokenizer=tokenizer, masking=masking, padding=Padding(pad=tokenizer.pad_token_id),
            batch_size=batch_size, block_size=config.block_size, packing=config.pack,
            shortest=config.min_characters, held=frozenset(map(hash_of, self.validation)),
        )  # fmt: skip
        reader = TextReader(column=config.text_column, tell=place.first)
        return stream_loader(config, self.files, reader, make, place, say, pool=make.rows)


def streamed_corpus(config: Any, files: Sequence[Source], begun: Path | None, say: Say) -> StreamedCorpus:
    """Sample the files without reading them whole.

    Arguments:
        begun: directory of a run to resume.

    Raises:
        UsageError: other files than the run was started with, or too little text.
        LoaderFailed: a file is truncated.
    """
    if begun is not None:
        require_same_files(files, begun)
    found = sample_of(files, config.text_column, config.min_characters)
    where = ", ".join(config.data)
    if config.val:
        validation = read_texts(config.val, column=config.text_column, shortest=config.min_characters).texts
        training = without(found.texts, validation)
    else:
        check_enough(Texts(texts=found.texts), f"{where}: the sample")
        training, validation = split(found.texts, config.val_share)
    check_enough(Texts(texts=training), f"{where}: the sample")
    say(f"{where}: {found.words}. Streaming the data (--stream off loads it into memory)")
    say(f"{len(validation):,} texts for validation; duplicates are not searched")
    return StreamedCorpus(files=files, training=training, validation=validation, characters=found.characters)
