"""Settings that cannot work, refused before anything is read or written."""

from __future__ import annotations

from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.settings import require


def refuse_impossible(config: Any) -> None:
    """Look at the settings of a translation's training.

    Raises:
        UsageError: one of them, or two together, cannot work.
    """
    if config.val and not config.train:
        raise UsageError("--val without --train", fix="--train pairs.csv --val others.csv")
    require(
        config,
        above_zero=("learning_rate", "max_grad_norm", "minutes", "val_share"),
        at_least_one=(
            "epochs", "max_steps", "batch_size", "batch_tokens", "accumulation", "eval_epochs", "eval_rows",
            "eval_batch_size", "beams", "checkpoint_steps", "keep_checkpoints", "vocab_size", "max_ratio",
        ),
        at_least_zero=("weight_decay", "patience", "samples", "seed"),
        shares=("val_share", "warmup_ratio", "label_smoothing", "dropout", "ema"),
    )  # fmt: skip
    if min(config.max_source_length, config.max_target_length) < 4:
        raise UsageError("--max-source-length and --max-target-length: expected at least 4 tokens", fix="256 is usual")
