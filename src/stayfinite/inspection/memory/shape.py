"""The shape of a model: everything that its memory depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["t5", "bert", "llama", "gpt2", "vit"]
"""Model families that keep the same tensors for the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The dimensions of a transformer."""

    name: str
    family: Family
    width: int
    """Of the residual stream."""
    ff: int
    """Inner width of the feed-forward part."""
    heads: int
    kv_heads: int
    """Fewer than `heads` with grouped queries."""
    head_width: int
    layers: int
    """Of the encoder, or the only stack."""
    decoder_layers: int = 0
    vocabulary: int = 0
    positions: int = 0
    """Rows of a learned position table; also the longest sequence."""
    types: int = 0
    """Rows of the segment table (BERT)."""
    gated: bool = False
    activation: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    tied: bool = True
    """The output layer shares the embedding matrix."""
    classes: int = 0
    """Outputs of a classifier; 0 for a language model."""
    per_token: bool = True
    """Whether the output layer sees every token, or one vector per row."""
    pooler: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ff_bias: bool = False
    head_norms: bool = False
    """Queries and keys are normalized per head (Qwen3)."""
    buckets: int = 0
    """Relative position buckets (T5)."""
    image: int = 0
    """Pixels per side."""
    patch: int = 0
    channels: int = 3

    @property
    def encoder_decoder(self) -> bool:
        return self.decoder_layers > 0

    @property
    def inner(self) -> int:
        """Total width of the queries."""
        return self.heads * self.head_width

    @property
    def kv_inner(self) -> int:
        """Total width of the keys."""
        return self.kv_heads * self.head_width

    @property
    def outputs(self) -> int:
        """Width of the logits."""
        return self.classes or self.vocabulary

    @property
    def image_tokens(self) -> int:
        """Patches plus the class token."""
        return (self.image // self.patch) ** 2 + 1 if self.patch else 0

    @property
    def matrices_in_ff(self) -> int:
        """Matrices of the feed-forward part."""
        return 3 if self.gated else 2
