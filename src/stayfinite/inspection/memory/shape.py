"""The shape of a model: everything that its memory depends on, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["t5", "bert", "llama", "gpt2", "vit"]
"""Models that keep the same tensors for the backward pass, whatever they are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A transformer, in numbers."""

    name: str
    family: Family
    width: int
    """Of the residual stream."""
    ff: int
    """Of the inner layer of the feed-forward part."""
    heads: int
    kv_heads: int
    """Fewer than `heads` where several queries share keys and values."""
    head_width: int
    layers: int
    """Of the encoder, or of the only stack."""
    decoder_layers: int = 0
    vocabulary: int = 0
    positions: int = 0
    """Rows of a learned table of positions; also the longest sequence that it allows."""
    types: int = 0
    """Rows of the table of segments (BERT)."""
    gated: bool = False
    activation: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    tied: bool = True
    """The output layer shares its matrix with the embedding."""
    classes: int = 0
    """Outputs of a classifier; 0 for a language model, which has the vocabulary."""
    per_token: bool = True
    """Whether the output layer sees every token, or one vector for each row."""
    pooler: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ff_bias: bool = False
    head_norms: bool = False
    """Queries and keys are normalized head by head (Qwen3)."""
    buckets: int = 0
    """Of the relative positions (T5)."""
    image: int = 0
    """Pixels on a side."""
    patch: int = 0
    channels: int = 3

    @property
    def encoder_decoder(self) -> bool:
        """Whether there are two stacks."""
        return self.decoder_layers > 0

    @property
    def inner(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_width

    @property
    def kv_inner(self) -> int:
        """Width of all keys together."""
        return self.kv_heads * self.head_width

    @property
    def outputs(self) -> int:
        """Width of the logits."""
        return self.classes or self.vocabulary

    @property
    def image_tokens(self) -> int:
        """Patches and the class token."""
        return (self.image // self.patch) ** 2 + 1 if self.patch else 0

    @property
    def matrices_in_ff(self) -> int:
        """Matrices of the feed-forward part."""
        return 3 if self.gated else 2
