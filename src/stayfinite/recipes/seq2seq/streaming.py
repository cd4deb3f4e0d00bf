"""Stream pairs larger than memory: a sample, and batches."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Broken, Source
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.batching import SPREAD, Example, LengthBuckets, Loading
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.encoding import Encoding
from stayfinite.recipes.seq2seq.pairs import clean, normalizer, pairs_of, read_pairs, split, tidy, to_score
from stayfinite.recipes.seq2seq.tables import Columns
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.loading import HELD, PassedOver, Say, Streamed, TableReader, look

LONGEST = 100_000
"""Characters of a text to tokenize: no token limit needs more, and time grows with it."""


class PairReader(TableReader[Pair]):
    """Reads the pairs of a file."""

    def read(self, source: Source) -> Iterator[tuple[Pair, int]]:
        passed = PassedOver(tell=self.tell)

        def wrong(path: Path, places: Sequence[Broken]) -> None:
            for place in places:
                passed(path, place)

        for pairs, done in pairs_of(source, self.columns, Columns(), wrong):
            yield from ((pair, done) for pair in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPool:
    """Turns pairs into batches of similar length."""

    config: Any
    encode: Encoding
    padding: Callable[[Sequence[Example]], dict[str, Tensor]]
    batch_size: int
    tokens: int | None
    """Token budget per batch, instead of ``batch_size``."""
    held: frozenset[str]
    """Groups and sources of validation, which are never trained on."""

    def __call__(self, rows: Sequence[Pair], chance: random.Random) -> Iterator[Mapping[str, Tensor]]:
        cut = (replace(pair, source=pair.source[:LONGEST], target=pair.target[:LONGEST]) for pair in rows)
        kept = clean(list(cut), normalizer(self.config.normalise), max_ratio=self.config.max_ratio).pairs
        free = [pair for pair in kept if pair.group not in self.held and pair.source not in self.held]
        examples = self.encode.quietly(free)
        lengths = [(len(example.source), len(example.target)) for example in examples]
        seed = chance.getrandbits(62)
        spread = SPREAD if self.config.length_buckets else 0
        order = LengthBuckets(lengths, self.batch_size, tokens=self.tokens, spread=spread, seed=seed)
        for batch in order:
            yield self.padding([examples[number] for number in batch])


def size_of(pair: Pair) -> int:
    """Characters of both sides."""
    return len(pair.source) + len(pair.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedPairs(Streamed[Pair]):
    """Files of pairs read on demand."""

    held: frozenset[str]
    """Groups and sources of validation."""

    def loader(
        self, config: Any, encode: Encoding, loading: Loading, place: Place, say: Say, *, rows: int,
        batch_size: int, tokens: int | None,
    ) -> StreamLoader:  # fmt: skip
        """The batches of this process, sized as in the sample.

        Arguments:
            rows: in the sample, to estimate the rows per batch.
        """
        make = PairPool(
            config=config, encode=encode, padding=loading.padding, batch_size=batch_size, tokens=tokens, held=self.held,
        )  # fmt: skip
        pool = max(1, rows // max(1, len(loading.sampler))) * SPREAD
        reader = PairReader(columns=Columns.of(config), tell=place.first)
        return self.loaded(config, reader, make, place, say, pool=pool)


def streamed_pairs(config: Any, files: Sequence[Source], say: Say) -> StreamedPairs:
    """Sample the files without reading them whole.

    Raises:
        UsageError: no usable pair.
        LoaderFailed: a file is truncated.
    """
    refuse_recorded_stream(config)
    columns, normalise = Columns.of(config), normalizer(config.normalise)
    sample: list[Pair] = []
    found = look(files, PairReader(columns=columns, tell=False).read, sample.append, size=size_of)
    kept = clean(sample, normalise, max_ratio=config.max_ratio)
    if not kept.pairs:
        raise UsageError(f"{', '.join(config.train)}: no usable pair in the sample: {kept}", fix="check the data")
    if config.val:
        validation = [tidy(pair, normalise) for pair in to_score(read_pairs(config.val, columns, say))]
        held = frozenset(pair.source for pair in validation)
        training = [pair for pair in kept.pairs if pair.source not in held]
    else:
        # By whole groups, and few enough to translate repeatedly.
        training, validation = split(kept.pairs, min(config.val_share, HELD / len(kept.pairs)))
        held = frozenset(pair.group or pair.source for pair in validation)
    if not training or not validation:
        missing = "train on" if not training else "validate with"
        raise UsageError(f"no pair in the sample to {missing}", fix="--val FILE, or another --val-share")
    streamed = StreamedPairs(
        files=files, training=training, validation=validation, held=held, characters=found.characters, size=size_of
    )
    streamed.introduce(config.train, f"{found.words}, {kept}", "pairs", say)
    return streamed  # fmt: skip


def refuse_recorded_stream(config: Any) -> None:
    """Raise UsageError for settings that do not work with a stream.

    Graphs need the lengths of all rows, and a resumed stream cannot sample the same segmentations again.
    """
    if config.segmentations:
        raise UsageError(
            "--segmentations with a stream: a resumed run could not sample the same ones",
            fix="leave out --segmentations, or --stream off",
        )
    if config.graphs:
        raise UsageError(
            "--graphs with a stream: its few forms of batch are chosen from the lengths of all rows",
            fix="leave out --graphs, or --stream off",
        )
