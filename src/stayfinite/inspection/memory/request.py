"""What ``stayfinite check --memory`` is asked, and what of it cannot be."""

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
MOST = 1 << 24
"""Of rows, tokens and ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """A training whose memory is asked for. Whatever cannot be raises UsageError with the name of its flag."""

    model: str
    """A directory, a config.json, or a well-known name."""
    batch: int = 1
    """Rows in a batch."""
    seq: int = 512
    """Tokens in a row."""
    target_seq: int | None = None
    """Tokens in a row of the decoder; as `seq` by default."""
    optimizer: str = "adamw"
    """Its name; see `optimizers.OPTIMIZERS`."""
    lora: int | None = None
    """The rank of adapters, when only they are trained."""
    gpu: str | None = None
    """The card that it is held against."""
    precision: str | None = None
    """The one that is meant: fp32, bf16, fp16, pure-bf16; all of them by default."""
    checkpointing: bool | None = None
    """Whether gradient checkpointing is on; both by default."""
    attention: AttentionChoice | None = None
    """By default as transformers chooses."""
    padded: bool = False
    """Whether rows have different lengths."""
    base: BaseChoice = "full"
    """How frozen weights are stored."""
    accumulate: bool = False
    """Whether gradients of several batches are added up."""

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
        """Refuse what this model cannot do.

        Raises:
            UsageError: rows are longer than its positions, or adapters wider than it is.
        """
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
        """How the step runs, in fp32 and without checkpointing; columns differ from it in both."""
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
