"""Describe a batch in words, for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

LONGEST = 200
"""Characters after which a description is truncated."""


def batch_in_words(batch: object) -> str:
    """Structure of a batch: `input_ids int64[8, 128], labels int64[8, 64]`."""
    words = _words(batch)
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def _words(item: object) -> str:
    if isinstance(item, Tensor):
        return f"{str(item.dtype).removeprefix('torch.')}{list(item.shape)}"
    if isinstance(item, Mapping):
        return ", ".join(f"{name} {_words(value)}" for name, value in item.items())
    if isinstance(item, Sequence) and not isinstance(item, str | bytes):
        return f"({', '.join(_words(value) for value in item[:4])}{', …' if len(item) > 4 else ''})"
    return type(item).__name__
