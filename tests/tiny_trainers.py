"""A tiny T5 in transformers' Trainer, with faults where they are wanted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    TrainerCallback,
    set_seed,
)

WIDTH, LENGTH, WORDS = 16, 6, 24
ROWS = 128


def tiny_t5(**settings: Any) -> T5ForConditionalGeneration:
    set_seed(0)
    shape = {
        "vocab_size": WORDS, "d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2,
        "dropout_rate": 0.1, "decoder_start_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    return T5ForConditionalGeneration(T5Config(**shape | settings))


def tiny_llama() -> LlamaForCausalLM:
    set_seed(0)
    shape = {
        "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": 32, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**shape))


class Tokens(torch.utils.data.Dataset):
    """Rows of words for a model that goes on with them."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = torch.randint(3, 32, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words.clone(), "attention_mask": torch.ones(8, dtype=torch.long)}


class Sentences(torch.utils.data.Dataset):
    """Sentences of word vectors to be named again; some may hold a NaN."""

    def __init__(self, rows: int = ROWS, bad: tuple[int, ...] = ()) -> None:
        made = torch.Generator().manual_seed(1)
        self.labels = torch.randint(2, WORDS, (rows, LENGTH), generator=made)
        self.vectors = torch.randn(WORDS, WIDTH, generator=made)[self.labels]
        for row in bad:
            self.vectors[row, 2, 5] = math.nan

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        labels = self.labels[index]
        before = torch.cat([torch.zeros(1, dtype=labels.dtype), labels[:-1]])
        return {"inputs_embeds": self.vectors[index].clone(), "labels": labels.clone(), "decoder_input_ids": before}


class Faulty(Seq2SeqTrainer):
    """Spoils the loss, or a gradient, at one training step (the first is 1)."""

    fault, at = "", 0

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        found = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        if return_outputs or not model.training or self.state.global_step + 1 != self.at:
            return found
        if self.fault == "inf-loss":
            return found * math.inf
        if self.fault == "spike":
            return found * 50
        if self.fault == "nan-gradient":
            return SpoiltBackward.apply(found)
        return found


class SpoiltBackward(torch.autograd.Function):
    """A loss that is fine, and gradients that are not."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * math.nan


def arguments(folder: Path, **settings: Any) -> Seq2SeqTrainingArguments:
    usual = {
        "output_dir": str(folder), "use_cpu": True, "max_steps": 20, "per_device_train_batch_size": 8,
        "learning_rate": 1e-2, "lr_scheduler_type": "linear", "logging_steps": 5, "save_strategy": "no",
        "report_to": [], "disable_tqdm": True, "seed": 3, "optim": "adamw_torch", "dataloader_pin_memory": False,
    }  # fmt: skip
    return Seq2SeqTrainingArguments(**usual | settings)


def tiny_trainer(
    folder: Path,
    *callbacks: TrainerCallback,
    bad: tuple[int, ...] = (),
    fault: str = "",
    at: int = 0,
    model: Any = None,
    data: Any = None,
    kind: type[Faulty] = Faulty,
    built_with: dict[str, Any] | None = None,
    **settings: Any,
) -> Faulty:
    trainer = kind(
        model=tiny_t5() if model is None else model or None,  # False for none: there is a model_init
        args=arguments(folder, **settings),
        train_dataset=Sentences(bad=bad) if data is None else data,
        callbacks=list(callbacks),
        **built_with or {},
    )
    trainer.fault, trainer.at = fault, at
    return trainer


def trained(folder: Path, *callbacks: TrainerCallback, **settings: Any) -> Faulty:
    """A tiny trainer that has trained."""
    trainer = tiny_trainer(folder, *callbacks, **settings)
    trainer.train()
    return trainer


def weights(trainer: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def finite(trainer: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in trainer.model.state_dict().values())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [each for each in lines(folder / "stayfinite" / "events.jsonl") if each["event"] == kind]
