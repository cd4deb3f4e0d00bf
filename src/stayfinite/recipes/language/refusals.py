"""Reject impossible settings before anything is read or written."""

from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.place import is_planned
from stayfinite.recipes.running.sharding import refuse_unshardable
from stayfinite.recipes.seq2seq.models import SIZES, is_size
from stayfinite.recipes.seq2seq.tokenizers import has_tokenizer
from stayfinite.recipes.settings import require, require_usual
from stayfinite.recipes.streaming.choosing import refuse_missing


def refuse_impossible(config: Any) -> None:
    """Raise UsageError if a setting, or a combination, is invalid."""
    require_usual(config)
    require(
        config,
        above_zero=("max_grad_norm", "lora_alpha"),
        at_least={
            1: (
                "mean_span_length", "train_batch_size", "eval_batch_size", "gradient_accumulation_steps", "eval_blocks",
            ),
            0: ("min_characters", "lora_rank"),
            8: ("block_size",),
            64: ("vocab_size",),
        },
        shares={"(0, 1)": ("val_share", "noise_density"), "[0, 1)": ("dropout", "lora_dropout", "warmup_ratio")},
    )  # fmt: skip
    planned = config.precision != "no" and is_planned(config.precision)
    refuse_unshardable(config, load_in_8bit=config.load_in_8bit, precision=planned)
    _refuse_places(config)
    _refuse_adapters(config)


def _refuse_places(config: Any) -> None:
    fix = "name a directory of .txt files, or .jsonl, .csv or .parquet files with a column of text"
    refuse_missing(config.data, fix)
    refuse_missing(config.val, fix, hub=False)
    require_room(config.output_dir)
    if config.checkpoint_dir is not None:
        require_room(config.checkpoint_dir, "--checkpoint-dir")
    if config.tokenizer_dir is not None and not has_tokenizer(Path(config.tokenizer_dir)):
        require_room(config.tokenizer_dir, "--tokenizer-dir")


def _refuse_adapters(config: Any) -> None:
    if config.load_in_8bit and config.lora_rank == 0:
        raise UsageError(
            "--load-in-8bit with --lora-rank 0: 8-bit weights cannot be trained, only adapters",
            fix="leave --lora-rank out or use 16; or leave --load-in-8bit out to train all weights",
        )
    if not (config.load_in_8bit or config.lora_rank):
        return
    if is_size(config.model_name):
        raise UsageError(
            f"adapters on {config.model_name!r}: its random weights would stay frozen",
            fix=(
                "--model-name with trained weights (google/mt5-small); or neither --load-in-8bit nor --lora-rank "
                f"with {', '.join(SIZES)}"
            ),
        )
    if config.tokenizer_dir is not None:
        raise UsageError(
            "adapters with --tokenizer-dir: embeddings of a new vocabulary would stay frozen",
            fix="leave --tokenizer-dir out, or train all weights",
        )
