"""The shape of a model and how its training runs, as far as they affect memory."""

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


AttentionChoice = Literal["sdpa", "eager"]
BiasKernel = Literal["eager", "math", "efficient"]
BaseChoice = Literal["full", "8bit", "4bit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Storage widths of one precision."""

    name: str
    title: str
    stored: int
    """Bytes per weight, gradient and optimizer state."""
    compute: int
    """Bytes per output element of a matrix product."""
    residual: int
    """Bytes per element of the residual stream."""

    @property
    def autocast(self) -> bool:
        """Whether weights are in fp32 and products in half precision, so every product casts its inputs."""
        return self.compute < self.stored


PRECISIONS = {
    "fp32": Precision(name="fp32", title="fp32", stored=4, compute=4, residual=4),
    "bf16": Precision(name="bf16", title="bf16 autocast", stored=4, compute=2, residual=4),
    "fp16": Precision(name="fp16", title="fp16 autocast", stored=4, compute=2, residual=4),
    "pure-bf16": Precision(name="pure-bf16", title="pure bf16", stored=2, compute=2, residual=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to run a training step."""

    batch: int
    seq: int
    target_seq: int
    """Decoder tokens per row; equals `seq` for models with one stack."""
    precision: Precision
    checkpointing: bool = False
    attention: AttentionChoice = "sdpa"
    bias_kernel: BiasKernel = "math"
    """Kernel for attention with a learned bias (T5) when `attention` is sdpa."""
    padded: bool = False
    """Whether rows differ in length, so that attention needs a mask."""
    optimizer: str = "adamw"
    lora: int = 0
    """Rank of the adapters; 0 if all weights are trained."""
    base: BaseChoice = "full"
    """Storage of the frozen weights under adapters."""
    accumulate: bool = False
    """Whether gradients of earlier batches exist during a step."""
    flash: bool = True
    """The GPU has the flash kernel: Ampere and newer."""
    hopper: bool = True
    """Hopper and newer, where cuBLAS has a larger workspace."""

    @property
    def tokens(self) -> int:
        return self.batch * self.seq

    @property
    def target_tokens(self) -> int:
        return self.batch * self.target_seq
