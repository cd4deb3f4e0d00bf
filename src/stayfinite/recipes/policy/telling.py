"""What a person reads of sampled answers: in the program's lines, and in an incident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.recipes.chat.batching import rows_in_words
from stayfinite.recipes.policy.groups import Portion


def shown(portion: Portion) -> dict[str, Tensor]:
    """Signals that stand in the program's own lines."""
    return {name: torch.tensor(portion.signals[name]) for name in ("right", "length")}


def in_words_of(tokenizer: Any, batch: Mapping[str, Tensor]) -> list[str]:
    """What each row was asked, what was said, and how much better than its siblings it was."""
    worth = batch["advantages"].tolist()
    return [f"{text} (advantage {one:+.2f})" for text, one in zip(rows_in_words(tokenizer, batch), worth, strict=True)]
