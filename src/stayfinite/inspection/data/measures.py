"""Encode text and measure its length: bytes, and all kinds of tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

LONGEST_TEXT = 400_000  # characters passed to a tokenizer; the rest exceeds any limit


class Encoded(NamedTuple):
    """Encoding statistics per text."""

    lengths: list[int]
    unknown: list[int]
    """Unknown tokens per text; empty if there are none."""
    largest: list[int]
    """Largest id per text; empty if no id can be too large."""


class Measure(Protocol):
    """Encodes text to ids."""

    unit: str
    unknown: bool
    """Whether it has an unknown token."""

    def encoded(self, texts: Sequence[str]) -> Encoded:
        """Lengths include the special tokens that the tokenizer adds."""
        ...

    def spelled(self, character: str) -> str | None:
        """Encode and decode a character; None if it is unknown."""
        ...


class Bytes:
    """One token per byte, plus an end token: ByT5 and similar."""

    unit = "bytes"
    unknown = False

    def encoded(self, texts: Sequence[str]) -> Encoded:
        lengths = [(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) + 1 for text in texts]
        return Encoded(lengths, [], [])

    def spelled(self, character: str) -> str | None:
        return character


class Fast:
    """A tokenizer of the tokenizers library."""

    unit = "tokens"

    def __init__(self, tokenizer: Any, unknown: str | None) -> None:
        self._tokenizer = tokenizer
        # Disable padding and truncation to get true lengths.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._unknown = tokenizer.token_to_id(unknown) if unknown else None
        self.unknown = self._unknown is not None

    @property
    def size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encoded(self, texts: Sequence[str]) -> Encoded:
        batch = [_clean(text) for text in texts]
        encode = getattr(self._tokenizer, "encode_batch_fast", self._tokenizer.encode_batch)
        return _counted([encoding.ids for encoding in encode(batch)], self._unknown)

    def spelled(self, character: str) -> str | None:
        ids = self._tokenizer.encode(_clean(character), add_special_tokens=False).ids
        if self._unknown is not None and self._unknown in ids:
            return None
        if self._tokenizer.decoder is None:
            # Without a decoder, separate pieces prove nothing.
            return character
        return str(self._tokenizer.decode(ids, skip_special_tokens=False)).strip(" ")


class Pieces:
    """A SentencePiece model with an end token."""

    unit = "tokens"

    def __init__(self, processor: Any, *, ends: bool = True) -> None:
        self._processor, self._ends = processor, int(ends)
        self._unknown: int = processor.unk_id()
        self.unknown = True

    @property
    def size(self) -> int:
        return int(self._processor.vocab_size())

    def encoded(self, texts: Sequence[str]) -> Encoded:
        found = self._processor.encode([_clean(text) for text in texts])
        return _counted(found, self._unknown, ends=self._ends)

    def spelled(self, character: str) -> str | None:
        ids = self._processor.encode(_clean(character))
        return None if self._unknown in ids else str(self._processor.decode(ids)).strip(" ")


class Slow:
    """A tokenizer that only transformers can build."""

    unit = "tokens"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._unknown: int | None = tokenizer.unk_token_id
        self.unknown = self._unknown is not None

    @property
    def size(self) -> int:
        return len(self._tokenizer)

    def encoded(self, texts: Sequence[str]) -> Encoded:
        found = self._tokenizer([_clean(text) for text in texts], truncation=False, verbose=False)["input_ids"]
        return _counted(found, self._unknown)

    def spelled(self, character: str) -> str | None:
        ids = self._tokenizer(_clean(character), add_special_tokens=False)["input_ids"]
        if self._unknown is not None and self._unknown in ids:
            return None
        return str(self._tokenizer.decode(ids)).strip(" ")


def _counted(texts: Sequence[list[int]], unknown: int | None, *, ends: int = 0) -> Encoded:
    return Encoded(
        [len(ids) + ends for ids in texts],
        [ids.count(unknown) for ids in texts] if unknown is not None else [],
        [max(ids, default=-1) for ids in texts],
    )


def _clean(text: str) -> str:
    """Shorten the text and replace lone surrogates, which tokenizers reject."""
    text = text[:LONGEST_TEXT]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8", "replace")
