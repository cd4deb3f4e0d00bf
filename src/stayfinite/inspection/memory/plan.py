"""How a training runs, as far as it affects memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
