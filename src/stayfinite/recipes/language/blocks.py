"""Split token sequences into blocks without dropping any tokens."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.tokenizers import sentinel_ids

Packing = Literal["long", "all"]
"""`long` splits long texts only; `all` also packs short ones, separated by an end token."""
LEAST = 2
"""Minimum tokens per block; fewer leave nothing to predict from."""
CHUNK = 1000
"""Texts tokenized at a time."""


class Blocks:
    """Blocks of token ids, four bytes per token."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        self._tokens = array("i")
        self._ends = array("q", [0])
        for row in rows:
            self._tokens.extend(row)
            self._ends.append(len(self._tokens))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> list[int]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._tokens[self._ends[number] : self._ends[number + 1]].tolist()

    @property
    def lengths(self) -> list[int]:
        """Tokens per block."""
        return [self._ends[number + 1] - self._ends[number] for number in range(len(self))]

    @property
    def tokens(self) -> int:
        """Total tokens."""
        return len(self._tokens)


def cut(row: Sequence[int], size: int) -> list[Sequence[int]]:
    """Split a row into pieces of at most ``size`` tokens, as equal as possible."""
    count = max(1, -(-len(row) // size))
    bounds = [len(row) * number // count for number in range(count + 1)]
    return [row[start:end] for start, end in pairwise(bounds)]


def blocks_of(rows: Iterable[Sequence[int]], size: int, *, packing: Packing = "long", end: int = 1) -> Blocks:
    """Rows as blocks of at most ``size`` tokens. Single-token rows are dropped.

    Arguments:
        end: token between two texts in a block.
    """
    pieces = (piece for row in rows for piece in cut(row, size) if len(piece) >= LEAST)
    return Blocks(pieces if packing == "long" else _together(pieces, size, end))


def tokenized(texts: Sequence[str], tokenizer: Any, reserved: Iterable[int]) -> Iterator[list[int]]:
    """Token ids of each text, without end tokens.

    Arguments:
        reserved: ids to remove: `<extra_id_3>` written in a text is not a gap.
    """
    forbidden = set(reserved)
    for start in range(0, len(texts), CHUNK):
        found = tokenizer(list(texts[start : start + CHUNK]), add_special_tokens=False, verbose=False).input_ids
        for row in found:
            yield row if forbidden.isdisjoint(row) else [token for token in row if token not in forbidden]


def reserved_ids(tokenizer: Any) -> list[int]:
    """Tokens that must not come from a text: sentinels, end, padding."""
    return [*sentinel_ids(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id]


def _together(pieces: Iterable[Sequence[int]], size: int, end: int) -> Iterator[list[int]]:
    block: list[int] = []
    for piece in pieces:
        if block and len(block) + 1 + len(piece) > size:
            yield block
            block = []
        block = [*block, end, *piece] if block else list(piece)
    if block:
        yield block


def blocks_for(
    texts: Sequence[str], tokenizer: Any, size: int, *, packing: Packing, name: str, say: Callable[[str], None]
) -> Blocks:
    """Texts as blocks, without reserved tokens.

    Arguments:
        name: of the texts, for messages.

    Raises:
        UsageError: no block.
    """
    rows = tokenized(texts, tokenizer, reserved_ids(tokenizer))
    found = blocks_of(rows, size, packing=packing, end=tokenizer.eos_token_id)
    if not len(found):
        raise UsageError(f"{name}: every text has fewer than two tokens: nothing to predict", fix="check the data")
    say(f"{name}: {len(found):,} blocks of up to {size} tokens, {found.tokens:,} tokens in total")
    return found
