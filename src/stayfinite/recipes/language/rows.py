"""Rows of a batch as text, for incidents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from stayfinite.recipes.language.masking import Masking
from stayfinite.recipes.seq2seq.batching import IGNORED, Example


def rows_in_words(tokenizer: Any, masking: Masking) -> Callable[[Mapping[str, Tensor]], list[str]]:
    """A function from a batch to the text of each row, with gaps filled."""

    def describe(batch: Mapping[str, Tensor]) -> list[str]:
        rows = zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True)
        examples = (
            Example(given[mask.bool()].tolist(), asked[asked != IGNORED].tolist()) for given, mask, asked in rows
        )
        return [str(tokenizer.decode(masking.whole(example))) for example in examples]

    return describe
