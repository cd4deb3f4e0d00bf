"""Pairs, models and settings with which the translation program runs in a second or two."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration
from transformers.utils import logging

from stayfinite.recipes.seq2seq.built_in import Pair, store_records
from stayfinite.recipes.translate import Translate

logging.disable_progress_bar()


def write_pairs(path: Path, pairs: list[Pair]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows((pair.source, pair.target) for pair in pairs)
    return path


def short_pairs(count: int) -> list[Pair]:
    """Words and their letters in another order: short, and quickly learned a little."""
    return [Pair(" ".join(pair.source.split()[:2]), " ".join(pair.target.split()[:2])) for pair in store_records(count)]


def byte_model(directory: Path, *, outlier: float = 1.0, letters: float = 1.0) -> Path:
    """A T5 on bytes of a few thousand weights; with an outlier its feed-forward layer goes beyond fp16.

    With ``letters`` above 1 it writes letters rather than any byte.
    """
    torch.manual_seed(0)
    kind: Any = T5Config
    shape = kind(
        vocab_size=384, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = T5ForConditionalGeneration(shape)
    with torch.no_grad():
        layer = model.encoder.block[0].layer[1].DenseReluDense
        layer.wi.weight.mul_(outlier)
        layer.wo.weight.mul_(outlier)
        model.shared.weight.mul_(0.1)
        model.shared.weight[ord("a") + 3 : ord("z") + 4].mul_(letters)
    model.save_pretrained(directory)
    ByT5Tokenizer().save_pretrained(directory)
    return directory


def quick_settings(folder: Path, **changes: Any) -> Translate:
    """Settings for a run in this folder, with data and a model of its own."""
    if not (folder / "model").exists():
        byte_model(folder / "model")
        write_pairs(folder / "pairs.csv", short_pairs(60))
    chosen = {
        "train": (str(folder / "pairs.csv"),), "model": str(folder / "model"), "output_dir": str(folder / "run"),
        "batch_size": 8, "accumulation": 1, "epochs": 2, "learning_rate": 3e-3, "gradient_checkpointing": False,
        "max_source_length": 24, "max_target_length": 24, "eval_rows": 4, "beams": 1, "device": "cpu", "check": "off",
        "val_share": 0.2, "logging_steps": 5,
    }  # fmt: skip
    return Translate(**{**chosen, **changes})
