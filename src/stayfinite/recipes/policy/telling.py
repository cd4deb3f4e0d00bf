"""Sampled answers for log lines and incidents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.recipes.chat.batching import rows_in_words
from stayfinite.recipes.policy.groups import Portion


def shown(portion: Portion) -> dict[str, Tensor]:
    """Signals for log lines."""
    return {name: torch.tensor(portion.signals[name]) for name in ("right", "length")}


def in_words_of(tokenizer: Any, batch: Mapping[str, Tensor]) -> list[str]:
    """Prompt, answer and advantage of each row."""
    worth = batch["advantages"].tolist()
    return [f"{text} (advantage {one:+.2f})" for text, one in zip(rows_in_words(tokenizer, batch), worth, strict=True)]
