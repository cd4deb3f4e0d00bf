"""Reject impossible settings before anything is read or written."""

from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.place import is_planned
from stayfinite.recipes.running.sharding import refuse_unshardable
from stayfinite.recipes.settings import require, require_usual


def refuse_impossible(config: Any) -> None:
    """Raise UsageError if a setting, or a combination, is invalid."""
    require_usual(config)
    require(
        config, above_zero=("max_grad_norm",),
        at_least={
            1: ("sample_steps", "max_length", "vocab_size", "patch"),
            0: ("text_weight", "latent_weight", "loss_bound"),
        },
        shares={"(0, 1)": ("val_share",), "[0, 1)": ("dropout", "warmup_ratio")},
    )  # fmt: skip
    refuse_unshardable(config, precision=is_planned(config.precision))
    counted = {"l2t": config.text_weight, "t2l": config.latent_weight}
    if not counted.get(config.mode, config.text_weight + config.latent_weight):
        raise UsageError(f"--mode {config.mode}: all of its losses have weight 0", fix="--text-weight 1.0")
    require_room(config.output_dir)
