"""From settings and data to what is built."""

from __future__ import annotations

from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.model import Shape
from stayfinite.recipes.diffusion.sizes import measures_of
from stayfinite.recipes.diffusion.supply import Supply
from stayfinite.recipes.diffusion.trained import About
from stayfinite.recipes.running.ranges import check_numbers

ABOVE_ZERO = (
    "steps", "batch_size", "accumulation", "learning_rate", "max_grad_norm", "eval_steps", "eval_rows", "sample_steps",
    "logging_steps", "checkpoint_steps", "keep_checkpoints", "max_length", "vocab_size", "patch",
)  # fmt: skip
FROM_ZERO = ("warmup_steps", "weight_decay", "text_weight", "latent_weight", "loss_bound", "workers", "samples")


def check_settings(config: Any) -> None:
    """Raise UsageError for a number outside what it may be."""
    check_numbers(config, ABOVE_ZERO, above=True)
    check_numbers(config, FROM_ZERO, above=False)
    if not 0 < config.val_share < 1 or not 0 <= config.dropout < 1:
        raise UsageError(
            f"--val-share {config.val_share} --dropout {config.dropout}: expected shares below 1", fix="--val-share 0.1"
        )
    counted = {"l2t": config.text_weight, "t2l": config.latent_weight}
    if not counted.get(config.mode, config.text_weight + config.latent_weight):
        raise UsageError(f"--mode {config.mode}: every loss that it has is given the weight 0", fix="--text-weight 1.0")


def about_of(config: Any, supply: Supply, words: list[str] | None) -> About:
    """The model that the settings ask for and the data needs, and all that has to be known to use it.

    Raises:
        UsageError: the vocabulary is too small for the data, or the measures do not fit together.
    """
    known = max(supply.highest_id + 1, len(words or ()))
    if config.vocab_size is not None and config.vocab_size <= supply.highest_id:
        raise UsageError(
            f"--vocab-size {config.vocab_size}: the data has a token with id {supply.highest_id}",
            fix=f"--vocab-size {known}, or the tokenizer that the data was made with",
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
