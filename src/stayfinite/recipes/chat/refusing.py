"""Settings that cannot work, refused before anything is read or written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.adapters import holds_trained

ABOVE_ZERO = ("learning_rate", "max_grad_norm", "alpha")
LEAST = {
    "rank": 1, "epochs": 1, "batch_size": 1, "accumulation": 1, "rows": 1, "held_out": 1, "max_length": 8,
    "eval_epochs": 1, "eval_rows": 1,
}  # fmt: skip
SHARES = ("dropout", "val_share", "warmup_ratio")


def refuse(config: Any) -> None:
    """Say what is wrong with the settings of a fine-tuning.

    Raises:
        UsageError: a value is outside what it may be, or a trained adapter would be written over.
    """
    if config.precision == "fp16":
        raise UsageError(
            "--precision fp16: adapters are not trained in fp16, whose range activations and gradients leave",
            fix="--precision bf16 where the card has it, else fp32; fp16 is for `sft test` and `sft chat`",
        )
    for name in ABOVE_ZERO:
        value = getattr(config, name)
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{_flag(name)} {value}: expected a number above 0")
    for name, least in LEAST.items():
        if getattr(config, name) < least:
            raise UsageError(f"{_flag(name)} {getattr(config, name)}: expected {least} or more")
    for name in SHARES:
        value = getattr(config, name)
        if not (math.isfinite(value) and 0 <= value < 1):
            raise UsageError(f"{_flag(name)} {value}: expected a share, from 0 to below 1")
    if config.val and not config.train:
        raise UsageError("--val without --train", fix="give --train too, or neither for the built-in task")
    output = Path(config.output_dir)
    if holds_trained(output / "best") and not any((output / "checkpoints").glob("step-*")):
        raise UsageError(
            f"{output / 'best'} holds a trained adapter, and there is no checkpoint to go on from: a new run would "
            "write over it",
            fix="name another --output-dir, or move it away",
        )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
