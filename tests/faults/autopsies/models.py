"""Small real models, with the shapes of the large ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

WORDS = 40
IMAGE = WORDS - 1
"""The token in whose place LLaVA puts a patch."""

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def t5(**settings: Any) -> T5ForConditionalGeneration:
    small = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = T5Config(vocab_size=WORDS, decoder_start_token_id=0, **{**small, **settings})
    return T5ForConditionalGeneration(config)


def bert(**settings: Any) -> BertForSequenceClassification:
    return BertForSequenceClassification(
        BertConfig(vocab_size=WORDS, max_position_embeddings=16, **{**SMALL, **settings})
    )


def llama(**settings: Any) -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, max_position_embeddings=32, **{**SMALL, **settings}))


def vit(**settings: Any) -> ViTForImageClassification:
    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, num_labels=3, **{**SMALL, **settings}))


def llava() -> LlavaForConditionalGeneration:
    vision = CLIPVisionConfig(image_size=8, patch_size=4, **SMALL)
    text = LlamaConfig(vocab_size=WORDS, max_position_embeddings=32, **SMALL)
    return LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE))


def words(rows: int = 6, length: int = 7) -> Tensor:
    """Token ids, none of which is special."""
    return torch.randint(1, IMAGE, (rows, length))


def pictures_with_words(rows: int = 4) -> dict[str, Tensor]:
    """What LLaVA reads: four patches a picture, and words around them."""
    ids = words(rows, 10)
    ids[:, 1:5] = IMAGE
    return {
        "input_ids": ids,
        "pixel_values": torch.randn(rows, 3, 8, 8),
        "labels": torch.where(ids == IMAGE, -100, ids),
    }


class Regressor(nn.Module):
    """A body and a head."""

    def __init__(self, inputs: int = 5, outputs: int = 1, width: int = 12) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.Tanh())
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Sequences(nn.Module):
    """An LSTM with a head on its last state."""

    def __init__(self, inputs: int = 5, outputs: int = 3, width: int = 12) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def own_loss(model: Any) -> Callable[[Any], Tensor]:
    """The forward pass of a model that returns its loss."""
    return lambda batch: model(**batch).loss


def squared_error(model: nn.Module) -> Callable[[Any], Tensor]:
    """The forward pass of a regression of one number a row."""
    return lambda batch: F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])


def cross_entropy(model: nn.Module) -> Callable[[Any], Tensor]:
    """The forward pass of a classifier."""
    return lambda batch: F.cross_entropy(model(batch["x"]), batch["y"])
