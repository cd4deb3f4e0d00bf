"""Texts, a model and settings with which the language model's program runs in a second or two."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration

from stayfinite.recipes.language.built_in import travel_notes
from stayfinite.recipes.models import quiet_transformers
from stayfinite.recipes.mt5 import Mt5
from stayfinite.recipes.seq2seq.tokenizers import train_sentencepiece


def write_texts(directory: Path, count: int = 60, more: tuple[str, ...] = ()) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "notes.txt").write_text("\n".join([*travel_notes()[:count], *more]), encoding="utf-8")
    return directory


def write_shards(directory: Path) -> Path:
    """Four packed files of thirty texts each."""
    directory.mkdir(parents=True)
    for number in range(4):
        with gzip.open(directory / f"part-{number}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in travel_notes()[number * 30 :][:30])
    return directory


def tiny_model(directory: Path) -> Path:
    """A T5 of a few thousand weights with its tokenizer, as a hub would give it."""
    tokenizer = train_sentencepiece([*travel_notes()[:300], "Xerxes eats figs in the town."], directory, 200)
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    kind: Any = T5Config
    shape = kind(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=2,
        dropout_rate=0.1, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    with quiet_transformers():
        T5ForConditionalGeneration(shape).save_pretrained(directory)
    return directory


def settings(texts: Path, model: Path, output: Path, **changed: Any) -> Mt5:
    small: dict[str, Any] = {
        "data": (str(texts),), "model_name": str(model), "output_dir": str(output), "block_size": 24, "epochs": 2,
        "train_batch_size": 8, "gradient_accumulation_steps": 2, "learning_rate": 1e-2, "check": "off",
        "logging_steps": 1, "eval_steps": 3, "checkpoint_steps": 2, "samples": 0, "device": "cpu",
    }  # fmt: skip
    return Mt5(**(small | changed))
