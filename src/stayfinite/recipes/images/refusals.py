"""Reject impossible settings before anything is read or written."""

from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.images.assembling import PATCH, is_size, uses_lora
from stayfinite.recipes.images.data import refuse_missing_fold
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.place import is_planned
from stayfinite.recipes.running.sharding import refuse_unshardable
from stayfinite.recipes.settings import require, require_usual


def refuse_impossible(config: Any) -> None:
    """Raise UsageError if a setting, or a combination, is invalid."""
    require_usual(config)
    require(
        config, above_zero=("projector_learning_rate", "lora_alpha"),
        at_least={
            1: ("lora_rank", "image_size"),
            0: ("consistency", "max_grad_norm", "margin", "look_at_images", "cache_megabytes"),
        },
        shares={"[0, 1]": ("consistency_ramp", "warmup_ratio"), "[0, 1)": ("lora_dropout",)},
    )  # fmt: skip
    refuse_unshardable(config, base=config.base in ("8bit", "4bit"), precision=is_planned(config.precision))
    if config.base != "fp32" and not uses_lora(config):
        raise UsageError(
            f"--base {config.base} with --tuning full: quantized weights cannot be trained",
            fix="--tuning lora, or --base fp32",
        )
    if config.base == "bf16" and config.precision not in ("auto", "bf16"):
        raise UsageError(f"--base bf16 with --precision {config.precision}: the two must agree", fix="--precision bf16")
    if config.image_size % PATCH and is_size(config.model):
        raise UsageError(f"--image-size {config.image_size}: expected a multiple of {PATCH}", fix="--image-size 32")
    if len(set(config.answers)) < len(config.answers) or not all(word.strip() for word in config.answers):
        raise UsageError(f"--answers {' '.join(config.answers)}: expected three different words", fix="--answers A B C")
    if config.val is not None and config.train is None:
        raise UsageError("--val without --train", fix="give --train too")
    if config.train is None:  # a table may have folds of its own
        refuse_missing_fold(config.fold, range(config.folds))
    if not config.dry_run:
        require_room(config.output_dir)
