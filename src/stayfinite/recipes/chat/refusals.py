"""Settings that cannot work, refused before anything is read or written."""

from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.adapters import holds_trained
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.place import is_planned
from stayfinite.recipes.running.sharding import refuse_unshardable
from stayfinite.recipes.running.timing import refuse_untimed
from stayfinite.recipes.settings import require, require_usual


def refuse_impossible(config: Any) -> None:
    """Look at the settings of a fine-tuning.

    Raises:
        UsageError: a value is outside what it may be, or a trained adapter would be written over.
    """
    refuse_fp16(config)
    require_usual(config)
    require(
        config, above_zero=("max_grad_norm",), at_least={8: ("max_length",)},
        shares={"[0, 1)": ("dropout", "val_share", "warmup_ratio")},
    )  # fmt: skip
    refuse_unshardable(config, bits=config.bits != "full", precision=is_planned(config.precision))
    refuse_untimed(config)
    refuse_written_over(config)


def refuse_fp16(config: Any) -> None:
    """Refuse to train in fp16."""
    if config.precision == "fp16":
        raise UsageError(
            "--precision fp16: training is not supported in fp16: activations and gradients overflow",
            fix="--precision bf16 if the GPU supports it, else fp32; fp16 is for `sft test` and `sft chat`",
        )


def refuse_written_over(config: Any) -> None:
    """Refuse validation without training data, a place that cannot be written, and one with a trained adapter."""
    if config.val and not config.train:
        raise UsageError("--val without --train", fix="give --train too, or neither for the built-in task")
    require_room(config.output_dir)
    output = Path(config.output_dir)
    if holds_trained(output / "best") and not any((output / "checkpoints").glob("step-*")):
        raise UsageError(
            f"{output / 'best'} holds a trained adapter without a checkpoint: a new run would overwrite it",
            fix="name another --output-dir, or move it away",
        )
