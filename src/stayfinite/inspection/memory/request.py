"""Options of ``stayfinite check --memory``, validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from stayfinite.errors import UsageError
from stayfinite.inspection.memory.installed_transformers import Installed
from stayfinite.inspection.memory.optimizers import optimizer_named
from stayfinite.inspection.memory.plan import PRECISIONS, AttentionChoice, BaseChoice, Plan
from stayfinite.inspection.memory.shape import Shape
from stayfinite.rules.cards import Card

HOPPER = (9, 0)
MOST = 1 << 24  # limit of rows, tokens and ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """A training to estimate. Invalid values raise UsageError with the flag name."""

    model: str
    """A directory, a config.json, or a well-known name."""
    batch: int = 1
    """Rows per batch."""
    seq: int = 512
    """Tokens per row."""
    target_seq: int | None = None
    """Decoder tokens per row; default: `seq`."""
    optimizer: str = "adamw"
    """A name in `optimizers.OPTIMIZERS`."""
    lora: int | None = None
    """Rank of the adapters, if only they are trained."""
    gpu: str | None = None
    """The GPU to compare with."""
    precision: str | None = None
    """fp32, bf16, fp16 or pure-bf16; default: all."""
    checkpointing: bool | None = None
    """Gradient checkpointing; default: both."""
    attention: AttentionChoice | None = None
    """Default: as transformers chooses."""
    padded: bool = False
    """Whether rows differ in length."""
    base: BaseChoice = "full"
    """Storage of frozen weights."""
    accumulate: bool = False
    """Whether gradients are accumulated over batches."""

    def __post_init__(self) -> None:
        for name in ("batch", "seq", "target_seq", "lora"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST:
                raise UsageError(f"{_flag(name)} should be a whole number from 1 to {MOST:,}, not {value}")
        for name, allowed in (
            ("attention", get_args(AttentionChoice)),
            ("base", get_args(BaseChoice)),
            ("precision", tuple(PRECISIONS)),
        ):
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise UsageError(f"{_flag(name)} should be one of {', '.join(allowed)}, not {value!r}")
        if self.base != "full" and not self.lora:
            raise UsageError(f"--base {self.base} weights cannot be trained", fix=("add --lora 16, for example"))

    def refuse_for(self, shape: Shape) -> None:
        """Raise UsageError if rows exceed the model's positions, or adapters its width."""
        if shape.positions and self.seq > shape.positions:
            raise UsageError(
                f"--seq {self.seq} exceeds the {shape.positions} positions of {shape.name}",
                fix=f"--seq {shape.positions} at most",
            )
        if self.lora and self.lora > shape.width:
            raise UsageError(
                f"--lora {self.lora} exceeds the width of {shape.name}, {shape.width}", fix=("--lora 16, for example")
            )

    def plan(self, card: Card | None, library: Installed) -> Plan:
        """The step in fp32 without checkpointing; columns vary both."""
        return Plan(
            batch=self.batch,
            seq=self.seq,
            target_seq=self.target_seq or self.seq,
            precision=PRECISIONS["fp32"],
            attention=self.attention or "sdpa",
            bias_kernel=library.bias_kernel,
            padded=self.padded,
            optimizer=optimizer_named(self.optimizer).name,
            lora=self.lora or 0,
            base=self.base,
            accumulate=self.accumulate,
            flash=card is None or card.flash_attention_2,
            hopper=card is None or card.capability >= HOPPER,
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
