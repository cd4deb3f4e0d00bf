"""Pairs of texts: read, cleaned, split by group so that no group is on both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.built_in import Pair

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".arrow", ".csv.gz", ".jsonl.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns; None to guess."""

    source: str | None = None
    target: str | None = None
    group: str | None = None


def read_pairs(paths: Sequence[str], columns: Columns) -> list[Pair]:
    """The pairs of tables, or of two aligned text files, source first.

    Raises:
        UsageError: a file is missing, two files are not as long as one another, or a column is not there.
    """
    for path in paths:
        if not Path(path).is_file():
            raise UsageError(
                f"{path}: there is no such file", fix="name a CSV, TSV, JSONL or Parquet file, or two texts"
            )
    if all(Path(path).name.endswith(TABLES) for path in paths):
        return [pair for path in paths for pair in _table(path, columns)]
    if len(paths) != 2:
        raise UsageError(
            f"{', '.join(paths)}: expected tables, or two aligned text files, source first",
            fix="--train pairs.csv, or --train train.src train.tgt",
        )
    source, target = (Path(path).read_text(encoding="utf-8-sig").splitlines() for path in paths)
    if len(source) != len(target):
        raise UsageError(
            f"{paths[0]} has {len(source)} lines and {paths[1]} {len(target)}: they are not aligned",
            fix="one line in the one for each line in the other",
        )
    return [Pair(*both, group=str(number)) for number, both in enumerate(zip(source, target, strict=True))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is left after cleaning, and why the rest is not."""

    pairs: list[Pair]
    empty: int
    repeated: int
    uneven: int

    def __str__(self) -> str:
        left_out = {"empty": self.empty, "repeated": self.repeated, "of uneven length": self.uneven}
        words = ", ".join(f"{count:,} {why}" for why, count in left_out.items() if count)
        return f"{len(self.pairs):,} pairs" + (f" (left out: {words})" if words else "")


def clean(pairs: Sequence[Pair], normalise: Callable[[str], str], *, max_ratio: float) -> Kept:
    """Normalise the sources; leave out what is empty, said already, or much longer on one side than on the other."""
    kept: dict[bytes, Pair] = {}
    empty = repeated = uneven = 0
    for pair in pairs:
        pair = replace(pair, source=normalise(pair.source), target=" ".join(pair.target.split()))
        if not pair.source.strip() or not pair.target:
            empty += 1
            continue
        # Short texts may well differ by a factor; a sentence and a page may not.
        shorter, longer = sorted((len(pair.source) + 20, len(pair.target) + 20))
        if longer > max_ratio * shorter:
            uneven += 1
            continue
        key = hashlib.blake2b(f"{pair.source}\0{pair.target}".encode(), digest_size=16).digest()
        repeated += key in kept
        kept.setdefault(key, pair)
    return Kept(pairs=list(kept.values()), empty=empty, repeated=repeated, uneven=uneven)


def split(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Training and validation. A group, and a source text, is on one side only; which one depends on its name alone."""
    by_source: dict[str, str] = {}
    training: list[Pair] = []
    validation: list[Pair] = []
    for pair in pairs:
        # The same source in two groups would leak; it goes where it went first.
        side = by_source.setdefault(pair.source, _side(pair.group or pair.source, share))
        (validation if side == "val" else training).append(pair)
    sides = {pair.group: set[str]() for pair in pairs if pair.group}
    for side, found in (("train", training), ("val", validation)):
        for pair in found:
            if pair.group:
                sides[pair.group].add(side)
    torn = {group for group, both in sides.items() if len(both) == 2}
    if torn:
        training += [pair for pair in validation if pair.group in torn]
        validation = [pair for pair in validation if pair.group not in torn]
    return training, validation


def _side(name: str, share: float) -> str:
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    return "val" if number / 2**64 < share else "train"


def _table(path: str, columns: Columns) -> list[Pair]:
    raise UsageError(f"{path}: tables cannot be read yet", fix="two aligned text files")
