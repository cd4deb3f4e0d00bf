"""How a training is meant to run, as far as its memory depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionChoice = Literal["sdpa", "eager"]
BiasKernel = Literal["eager", "math", "efficient"]
BaseChoice = Literal["full", "8bit", "4bit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What is stored in which width."""

    name: str
    title: str
    stored: int
    """Bytes of a weight, of its gradient and of each optimizer state."""
    compute: int
    """Bytes of what a matrix product puts out."""
    residual: int
    """Bytes of the stream between the blocks."""

    @property
    def autocast(self) -> bool:
        """Weights in fp32 and matrix products in half precision: every product casts its weight and its input."""
        return self.compute < self.stored


PRECISIONS = {
    "fp32": Precision(name="fp32", title="fp32", stored=4, compute=4, residual=4),
    "bf16": Precision(name="bf16", title="bf16 autocast", stored=4, compute=2, residual=4),
    "fp16": Precision(name="fp16", title="fp16 autocast", stored=4, compute=2, residual=4),
    "pure-bf16": Precision(name="pure-bf16", title="pure bf16", stored=2, compute=2, residual=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way of running one training step."""

    batch: int
    seq: int
    target_seq: int
    """Tokens in a row of the decoder; equals `seq` for models with one stack."""
    precision: Precision
    checkpointing: bool = False
    attention: AttentionChoice = "sdpa"
    bias_kernel: BiasKernel = "math"
    """What computes attention with a learned bias, T5's, when `attention` is sdpa."""
    padded: bool = False
    """Whether batches hold rows of different lengths, so that attention needs a mask."""
    optimizer: str = "adamw"
    lora: int = 0
    """Rank of the adapters; 0 when all weights are trained."""
    base: BaseChoice = "full"
    """How the frozen weights under adapters are stored."""
    accumulate: bool = False
    """Whether gradients of earlier batches are alive during a step."""
    flash: bool = True
    """The card has the flash kernel: Ampere and newer."""
    hopper: bool = True
    """cuBLAS takes a larger workspace from Hopper on."""

    @property
    def tokens(self) -> int:
        """In a batch."""
        return self.batch * self.seq

    @property
    def target_tokens(self) -> int:
        """In a batch, on the decoder's side."""
        return self.batch * self.target_seq
