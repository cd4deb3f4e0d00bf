"""Rows of a batch as text, for incidents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from stayfinite.recipes.seq2seq.batching import IGNORED


def rows_in_words(tokenizer: Any) -> Callable[[dict[str, Tensor]], list[str]]:
    """A function from a batch to `source => target` of each row."""

    def describe(batch: dict[str, Tensor]) -> list[str]:
        labels = batch["labels"].masked_fill(batch["labels"] == IGNORED, tokenizer.pad_token_id)
        sides = [
            tokenizer.batch_decode(rows.tolist(), skip_special_tokens=True) for rows in (batch["input_ids"], labels)
        ]
        return [f"{source} => {target}" for source, target in zip(*sides, strict=True)]

    return describe
