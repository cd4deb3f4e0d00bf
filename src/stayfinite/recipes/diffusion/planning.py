"""Derive the model from settings and data."""

from __future__ import annotations

from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.model import Shape
from stayfinite.recipes.diffusion.sizes import measures_of
from stayfinite.recipes.diffusion.supply import Supply
from stayfinite.recipes.diffusion.trained import About


def about_of(config: Any, supply: Supply, words: list[str] | None) -> About:
    """The model for these settings and data, with everything needed to use it.

    Raises:
        UsageError: the vocabulary is too small for the data, or the sizes are inconsistent.
    """
    known = max(supply.highest_id + 1, len(words or ()))
    if config.vocab_size is not None and config.vocab_size <= supply.highest_id:
        raise UsageError(
            f"--vocab-size {config.vocab_size}: the data has token id {supply.highest_id}",
            fix=f"--vocab-size {known}, or the tokenizer of the data",
        )
    measures = measures_of(config.size, config.width, config.depth, config.heads)
    layout = supply.corpus.layout
    shape = Shape(
        vocabulary=config.vocab_size or known, length=supply.corpus.ids.shape[1], positions=layout.positions,
        channels=layout.channels, width=measures.width, depth=measures.depth, heads=measures.heads,
        dropout=config.dropout,
    )  # fmt: skip
    return About(
        shape=shape, layout=layout, schedule=config.noise_schedule, prediction=config.prediction, scale=supply.scale,
        lengths=supply.lengths, words=None if words is None else tuple(words), tokenizer=config.tokenizer,
    )  # fmt: skip
