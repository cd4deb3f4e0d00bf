"""Settings that cannot work, refused before anything is read or written."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.models import SIZES, is_size

AT_LEAST = {
    "min_characters": 0, "block_size": 8, "vocab_size": 64, "lora_rank": 0, "epochs": 1, "max_steps": 1,
    "train_batch_size": 1, "eval_batch_size": 1, "gradient_accumulation_steps": 1, "warmup_steps": 0,
    "logging_steps": 1, "eval_steps": 1, "eval_blocks": 1, "save_steps": 1, "save_total_limit": 1, "samples": 0,
    "seed": 0, "weight_decay": 0,
}  # fmt: skip
ABOVE_ZERO = ("learning_rate", "max_grad_norm", "lora_alpha")
SHARES = ("val_share", "noise_density")


def refuse_impossible(config: Any) -> None:
    """Look at the settings of a language model's training.

    Raises:
        UsageError: one of them, or two together, cannot work.
    """
    for name, least in AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value >= least):
            raise _wrong(name, value, f"at least {least}")
    for name in ABOVE_ZERO:
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise _wrong(name, value, "a number above 0", "1e-4 is a good start" if name == "learning_rate" else "")
    for name in SHARES:
        if not 0 < getattr(config, name) < 1:
            raise _wrong(name, getattr(config, name), "a share between 0 and 1")
    for name in ("dropout", "lora_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise _wrong(name, getattr(config, name), "a share from 0 on and below 1")
    if not (math.isfinite(config.mean_span_length) and config.mean_span_length >= 1):
        raise _wrong("mean_span_length", config.mean_span_length, "at least 1")
    _refuse_places(config)
    _refuse_adapters(config)


def _refuse_places(config: Any) -> None:
    for path in (*config.data, *config.val):
        if not Path(path).exists():
            raise UsageError(
                f"{path}: there is no such file or directory",
                fix="name a directory of .txt files, or .jsonl, .csv or .parquet files with a column of text",
            )
    for name in ("output_dir", "checkpoint_dir", "tokenizer_dir"):
        value = getattr(config, name)
        if value is not None and Path(value).is_file():
            raise UsageError(f"{_flag(name)} {value}: this is a file", fix="name a directory")
        if value is not None and not _writable(Path(value)):
            raise UsageError(f"{_flag(name)} {value}: nothing can be written there", fix="name another directory")


def _writable(place: Path) -> bool:
    """Whether a directory can be written, or made; one that only has to be read may be protected."""
    if (place / "spiece.model").is_file() or (place / "tokenizer.json").is_file():
        return True
    nearest = next(each for each in (place, *place.absolute().parents) if each.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def _refuse_adapters(config: Any) -> None:
    if config.load_in_8bit and config.lora_rank == 0:
        raise UsageError(
            "--load-in-8bit with --lora-rank 0: weights in 8 bits cannot be trained, only adapters on them can",
            fix="leave --lora-rank out, or --lora-rank 16; or leave --load-in-8bit out to train all weights",
        )
    if not (config.load_in_8bit or config.lora_rank):
        return
    if is_size(config.model_name):
        raise UsageError(
            f"adapters on {config.model_name!r}: it is built here with fresh weights, and adapters leave those frozen",
            fix="--model-name with trained weights (google/mt5-small), or train all weights: neither --load-in-8bit "
            f"nor --lora-rank with {', '.join(SIZES)}",
        )
    if config.tokenizer_dir is not None:
        raise UsageError(
            "adapters with --tokenizer-dir: the embeddings of a new vocabulary have to be learnt, and would be frozen",
            fix="leave --tokenizer-dir out to use the model's own, or train all weights",
        )


def _wrong(name: str, value: object, expected: str, fix: str = "") -> UsageError:
    return UsageError(f"{_flag(name)} {value}: expected {expected}", fix=fix)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
