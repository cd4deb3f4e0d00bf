"""Read pairs of texts, normalize their spelling, clean them, split by group."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Source
from stayfinite.readers.data.opening import FORMATS, matching, open_data
from stayfinite.readers.data.packed import ZIP
from stayfinite.readers.data.text_lines import ending
from stayfinite.readers.data.text_rows import aligned_chunks
from stayfinite.recipes.seq2seq.built_in import Pair, store_records
from stayfinite.recipes.seq2seq.tables import Columns, Wrong, pairs_of_table, refuse_broken

Form = Literal["nfc", "nfkc", "diacritics", "quotes", "subscripts", "gaps", "spaces"]
FORMS: tuple[Form, ...] = get_args(Form)

_QUOTES = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'", "\u00b4": "'", "\u0060": "'",
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
})  # fmt: skip
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉ₓ₊₋", "0123456789x+-")
_GAP = re.compile(r"\[?\s*(?:\.\s*){3,}\]?|\[?\s*…(?:\s*…)*\s*\]?|\[\s*x(?:\s+x)*\s*\]")
_SPACES = re.compile(r"\s+")


def _bare(text: str) -> str:
    apart = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))


_STEPS: dict[Form, Callable[[str], str]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
    "diacritics": _bare,
    "quotes": lambda text: text.translate(_QUOTES),
    "subscripts": lambda text: text.translate(_SUBSCRIPTS),
    "gaps": lambda text: _GAP.sub(" ... ", text),
    "spaces": lambda text: text,
}


def normalizer(forms: Sequence[Form]) -> Callable[[str], str]:
    """A function that applies these forms in a fixed order and collapses whitespace."""
    steps = [step for form, step in _STEPS.items() if form in forms]

    def normalize(text: str) -> str:
        for step in steps:
            text = step(text)
        return _SPACES.sub(" ", text).strip() if steps else text

    return normalize


def legible(text: str) -> str:
    """The text with `?` for undecodable bytes and lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


TEXTS = "texts"
"""Kind of two aligned text files with any names."""
AS_LONG = "give both files as many lines, the source and the target of a pair in the same"


def read_pairs(
    paths: Sequence[str],
    columns: Columns,
    say: Callable[[str], None] = lambda _: None,
    usual: Columns = Columns(),  # noqa: B008  (frozen)
) -> list[Pair]:
    """Pairs from tables, or from two aligned text files, source first.

    Arguments:
        paths: tables and directories of them, or two texts.
        columns: of tables.
        say: receives guesses and formats.
        usual: column names to use if the table has them.

    Raises:
        UsageError: a missing file or column, or texts of different lengths.
    """
    pairs: list[Pair] = []
    for source in files_of_pairs(paths):
        before = len(pairs)
        wrong = partial(refuse_broken, fix=AS_LONG if source.kind == TEXTS else None)
        for found, _ in pairs_of(source, columns, usual, wrong, say):
            pairs += found
        if source.kind == TEXTS:
            names = ", ".join(file.name for file in source.files)
            say(f"{names}: Moses, two aligned texts, {len(pairs) - before:,} rows")
    if not pairs:
        raise UsageError(f"{', '.join(paths)}: no pairs", fix="one source and target per row")
    return pairs


def files_of_pairs(paths: Sequence[str]) -> list[Source]:
    """Sources for tables or two aligned texts. Raises UsageError if a file is missing."""
    for path in paths:
        if not matching(path):
            raise UsageError(
                f"{path}: no such file",
                fix="name a CSV, TSV, JSON, JSONL, Parquet or TMX file, a zip archive, or two texts",
            )
    plain = [path for path in paths if Path(path).is_file() and _is_text(Path(path))]
    if not plain:
        return open_data(paths)
    if len(plain) == len(paths) == 2:
        return [_aligned(Path(paths[0]), Path(paths[1]))]
    raise UsageError(
        f"{', '.join(paths)}: expected tables, or two aligned text files, source first",
        fix="name pairs.csv, or train.src train.tgt",
    )


def pairs_of(
    source: Source, columns: Columns, usual: Columns, wrong: Wrong, say: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[list[Pair], int]]:
    """Pairs of a table or two aligned texts; see `pairs_of_table`."""
    if source.kind != TEXTS:
        yield from pairs_of_table(source, columns, usual, wrong, say)
        return
    for chunk in source.chunks():
        wrong(source.path, chunk.broken)
        yield [Pair(left, right) for left, right in zip(*chunk.columns.values(), strict=True)], chunk.done


def _is_text(path: Path) -> bool:
    return path.suffix.lower() != ZIP and FORMATS.get(ending(path), "txt") == "txt"


def _aligned(one: Path, two: Path) -> Source:
    """Pair line n with line n. Only real line ends count, not every Unicode separator."""
    size = one.stat().st_size + two.stat().st_size
    source = Source(path=one, kind=TEXTS, size=size, chunks=lambda: iter(()), files=(one, two))
    source.chunks = partial(aligned_chunks, source, two, ("source", "target"))
    return source


REASONS = EMPTY, REPEATED, UNEVEN, UNREADABLE = "empty", "repeated", "with very different lengths", "with invalid bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Pairs left after cleaning, and counts of those dropped."""

    pairs: list[Pair]
    dropped: Mapping[str, int]
    """By reason."""

    def __str__(self) -> str:
        words = ", ".join(f"{self.dropped[why]:,} {why}" for why in REASONS if self.dropped[why])
        return f"{len(self.pairs):,} pairs" + (f" (dropped: {words})" if words else "")


def clean(pairs: Sequence[Pair], normalize: Callable[[str], str], *, max_ratio: float) -> Kept:
    """Normalize the sources. Drop empty, repeated and very uneven pairs."""
    kept: dict[bytes, Pair] = {}
    dropped: Counter[str] = Counter()
    for pair in pairs:
        pair = tidy(pair, normalize)
        if not pair.source or not pair.target:
            dropped[EMPTY] += 1
            continue
        # Short texts may differ by a factor; a sentence and a page may not.
        shorter, longer = sorted((len(pair.source) + 20, len(pair.target) + 20))
        if longer > max_ratio * shorter:
            dropped[UNEVEN] += 1
            continue
        try:
            key = hashlib.blake2b(f"{pair.source}\0{pair.target}".encode(), digest_size=16).digest()
        except UnicodeEncodeError:  # undecodable bytes are lone surrogates
            dropped[UNREADABLE] += 1
            continue
        dropped[REPEATED] += key in kept
        kept.setdefault(key, pair)
    return Kept(pairs=list(kept.values()), dropped=dropped)


def tidy(pair: Pair, normalize: Callable[[str], str]) -> Pair:
    """Normalize the source, and collapse whitespace in the target."""
    return replace(pair, source=normalize(pair.source).strip(), target=" ".join(pair.target.split()))


def to_score(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs with a target, duplicates included, so that scores are comparable with other tools.

    Invalid characters become `?`, since a tokenizer would reject them.
    """
    legibly = (replace(pair, source=legible(pair.source), target=legible(pair.target)) for pair in pairs)
    return [pair for pair in legibly if pair.target.strip()]


def split(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Training and validation pairs. The side of a group depends on its name only; a pair without one is its own group.

    Validation sources that also occur in training are dropped.

    Raises:
        UsageError: fewer than two groups.
    """
    groups = {pair.group or pair.source: _place(pair.group or pair.source) for pair in pairs}
    if len(groups) < 2:
        raise UsageError(
            f"{len(pairs)} pairs in {len(groups)} group: no group can be held out for validation",
            fix="give validation data with --val, or a --group column with more than one value",
        )
    # At least the lowest group validates, and the highest always trains.
    bound = min(max(share, min(groups.values())), sorted(groups.values())[-2])
    training = [pair for pair in pairs if groups[pair.group or pair.source] > bound]
    known = {pair.source for pair in training}
    validation = [pair for pair in pairs if groups[pair.group or pair.source] <= bound and pair.source not in known]
    return training, validation


def _place(name: str) -> float:
    """A fixed number in [0, 1) for a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") / 2**64


BUILT_IN_PAIRS = 4000


def pairs_for(config: Any, say: Callable[[str], None]) -> tuple[list[Pair], list[Pair]]:
    """Normalized pairs for training and validation: of files, or of the built-in task.

    Arguments:
        config: without ``val``, a share of the pairs is held out.

    Raises:
        UsageError: nothing left to train or validate on, or unreadable files.
    """
    columns = Columns.of(config)
    normalize = normalizer(config.normalise)
    read = read_pairs(config.train, columns, say) if config.train else store_records(BUILT_IN_PAIRS)
    kept = clean(read, normalize, max_ratio=config.max_ratio)
    if not kept.pairs:
        raise UsageError(f"{', '.join(config.train)}: nothing left to train on: {kept}", fix="check the data")
    if config.val:
        training = kept.pairs
        validation = [tidy(pair, normalize) for pair in to_score(read_pairs(config.val, columns, say))]
    else:
        training, validation = split(kept.pairs, config.val_share)
    if not validation:
        raise UsageError("no pairs left for validation", fix="give some with --val, or raise --val-share")
    say(f"read {kept}; training on {len(training):,}, validation on {len(validation):,}")
    trained_on = {pair.source for pair in training}
    if both := sum(pair.source in trained_on for pair in validation):
        say(f"  {both:,} validation sources are in the training data: scores are too high")
    return training, validation
