"""Decode token ids to text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.errors import UsageError

VOCABULARY = "vocab.json"
Reader = Callable[[Sequence[int]], str]


def reader_for(directory: Path, tokenizer: str | None) -> tuple[Reader, list[str] | None]:
    """A decoder for the ids of a dataset, and its word list if any.

    Arguments:
        directory: of the data; may hold ``vocab.json``, a list of words or a mapping of words to ids.
        tokenizer: a directory or hub name to use instead.
    """
    if tokenizer is not None:
        from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer

        loaded: Any = load_tokenizer(tokenizer)
        return (lambda ids: str(loaded.decode(list(ids)))), None
    path = directory / VOCABULARY
    words = _read(path) if path.is_file() else None
    return reader_of(words), words


def reader_of(words: Sequence[str] | None) -> Reader:
    """A decoder for a word list; for numbers if None."""
    if words is None:
        return lambda ids: " ".join(map(str, ids))
    return lambda ids: " ".join(words[index] if index < len(words) else f"<{index}>" for index in ids)


def text_of(ids: Tensor, mask: Tensor, read: Reader) -> str:
    """A row's text without padding."""
    return read(ids[mask].tolist())


def _read(path: Path) -> list[str]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix='a list of words, ["<pad>", "a", ...]') from error
    if isinstance(held, dict) and all(isinstance(value, int) and value >= 0 for value in held.values()):
        words = [f"<{index}>" for index in range(max(held.values(), default=-1) + 1)]
        for word, index in held.items():
            words[index] = word
        return words
    if not isinstance(held, list):
        raise UsageError(f"{path}: expected a list of words, or words and their ids", fix='["<pad>", "a", ...]')
    return [str(word) for word in held]
