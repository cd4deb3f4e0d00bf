"""Pairs that do not fit memory: a sample of them to start from, and a stream of batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Broken, Source
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.batching import Example, LengthBuckets
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.encoding import Encoding
from stayfinite.recipes.seq2seq.loading import SPREAD, Loading
from stayfinite.recipes.seq2seq.normalizing import Form, normalizer
from stayfinite.recipes.seq2seq.pairs import clean, pairs_of, read_pairs, split, tidy, to_score
from stayfinite.recipes.seq2seq.tables import Columns
from stayfinite.recipes.streaming.files import require_same_files
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.loading import stream_loader
from stayfinite.recipes.streaming.sampling import HELD, batches_of_pass, look
from stayfinite.recipes.streaming.telling import PassedOver

Say = Callable[[str], None]
LONGEST = 100_000
"""Characters of a text that are tokenized: no limit of tokens leaves room for more, and the time grows with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReader:
    """The pairs of a file.

    Arguments:
        columns: which are what.
        tell: whether this process tells of rows that are passed over.
    """

    columns: Columns
    tell: bool = True

    def __call__(self, source: Source) -> Iterator[Pair]:
        """Its pairs; stops with `LoaderFailed` where the file is cut."""
        return (pair for pair, _ in self.read(source))

    def read(self, source: Source) -> Iterator[tuple[Pair, int]]:
        """Each with the bytes of the file that were read so far."""
        passed = PassedOver(tell=self.tell)

        def wrong(path: Path, places: Sequence[Broken]) -> None:
            for place in places:
                passed(path, place)

        for pairs, done in pairs_of(source, self.columns, Columns(), wrong):
            yield from ((pair, done) for pair in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPool:
    """Turns some pairs into batches of rows of like length."""

    encode: Encoding
    forms: tuple[Form, ...]
    max_ratio: float
    padding: Callable[[Sequence[Example]], dict[str, Tensor]]
    batch_size: int
    tokens: int | None
    """Instead of ``batch_size``, at most this many tokens per batch."""
    spread: int
    """Batches that are sorted together."""
    held: frozenset[str]
    """Groups and sources that validate; they are never trained on."""

    def __call__(self, rows: Sequence[Pair], chance: random.Random) -> Iterator[Mapping[str, Tensor]]:
        cut = (replace(pair, source=pair.source[:LONGEST], target=pair.target[:LONGEST]) for pair in rows)
        kept = clean(list(cut), normalizer(self.forms), max_ratio=self.max_ratio).pairs
        free = [pair for pair in kept if pair.group not in self.held and pair.source not in self.held]
        examples = self.encode.quietly(free)
        lengths = [(len(example.source), len(example.target)) for example in examples]
        seed = chance.getrandbits(62)
        order = LengthBuckets(lengths, self.batch_size, tokens=self.tokens, spread=self.spread, seed=seed)
        for batch in order:
            yield self.padding([examples[number] for number in batch])


def size_of(pair: Pair) -> int:
    """Characters of both sides."""
    return len(pair.source) + len(pair.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedPairs:
    """Files of pairs that are read as they are needed."""

    files: Sequence[Source]
    training: list[Pair]
    """Of the sample: what a tokenizer is trained on, and the first batch is made of."""
    validation: list[Pair]
    held: frozenset[str]
    """Groups and sources that validate."""
    characters: int | None
    """Of all files, about."""

    def batches(self, loading: Loading, ranks: int, *, steps: int | None) -> int:
        """Batches of a pass on each rank, about.

        Arguments:
            loading: of the sample, with batches of one rank.
        """
        sampled = sum(map(size_of, self.training))
        return batches_of_pass(sampled, len(loading.sampler), self.characters, ranks, steps=steps)

    def loader(
        self, config: Any, encode: Encoding, loading: Loading, place: Place, say: Say, *, rows: int,
        batch_size: int, tokens: int | None,
    ) -> StreamLoader:  # fmt: skip
        """The batches of this process, like those that the sample makes.

        Arguments:
            rows: of the sample, which say how many rows make a batch.
        """
        make = PairPool(
            encode=encode, forms=config.normalise, max_ratio=config.max_ratio, padding=loading.padding,
            batch_size=batch_size, tokens=tokens, spread=SPREAD if config.length_buckets else 0,
            held=self.held,
        )  # fmt: skip
        pool = max(1, rows // max(1, len(loading.sampler))) * SPREAD
        reader = PairReader(columns=Columns.of(config), tell=place.first)
        return stream_loader(config, self.files, reader, make, place, say, pool=pool, size=size_of)


def streamed_pairs(config: Any, files: Sequence[Source], begun: Path | None, say: Say) -> StreamedPairs:
    """Look at the files, without reading them all.

    Arguments:
        begun: the directory of a run that goes on.

    Raises:
        UsageError: they are not those that the run was begun with, or hold no pair that could be trained on.
        LoaderFailed: one is cut.
    """
    if begun is not None:
        require_same_files(files, begun)
    columns, normalise = Columns.of(config), normalizer(config.normalise)
    sample: list[Pair] = []
    found = look(files, PairReader(columns=columns, tell=False).read, sample.append, size=size_of)
    kept = clean(sample, normalise, max_ratio=config.max_ratio)
    where = ", ".join(config.train)
    if not kept.pairs:
        raise UsageError(f"{where}: nothing of the sample is left to train on: {kept}", fix="look at the data")
    if config.val:
        validation = [tidy(pair, normalise) for pair in to_score(read_pairs(config.val, columns, say))]
        held = frozenset(pair.source for pair in validation)
        training = [pair for pair in kept.pairs if pair.source not in held]
    else:
        # By whole groups, and no more than can well be translated again and again.
        training, validation = split(kept.pairs, min(config.val_share, HELD / len(kept.pairs)))
        held = frozenset(pair.group or pair.source for pair in validation)
    if not training or not validation:
        missing = "train on" if not training else "validate with"
        raise UsageError(f"no pair of the sample is left to {missing}", fix="--val FILE, or another --val-share")
    say(f"{where}: {found.words}, {kept}. The data is streamed (--stream off holds it in memory)")
    say(f"{len(validation):,} pairs for validation; repeated pairs are not looked for")
    return StreamedPairs(
        files=files, training=training, validation=validation, held=held, characters=found.characters
    )  # fmt: skip
