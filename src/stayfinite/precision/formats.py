"""Number formats of training: range, rounding, and the cards that support them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.rules.cards import Card

VOLTA = (7, 0)
"""First architecture with fp16 tensor cores."""
_TF32_DROPPED = 13
"""Bits of fp32's 23-bit fraction that TF32 drops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A number format."""

    name: str
    dtype: torch.dtype
    """Storage dtype. TF32 is stored as fp32."""
    largest: float
    smallest_normal: float
    smallest_subnormal: float
    """Half of this or less rounds to 0."""
    epsilon: float
    """Gap between 1 and the next number."""

    @property
    def bytes(self) -> int:
        """Bytes per number."""
        return self.dtype.itemsize

    def on(self, card: Card) -> bool:
        """Whether the card has hardware matrix products in this format."""
        half = card.amd or card.capability >= VOLTA
        return {"fp32": True, "fp16": half, "bf16": card.bf16, "tf32": card.tf32}.get(self.name, card.fp8)

    def rounded(self, values: Tensor) -> Tensor:
        """The values rounded to this format, as fp32. Overflow gives infinity."""
        values = values.float()
        if self.name == "fp32":
            return values
        if self.name == "tf32":
            return _rounded_to(values, _TF32_DROPPED)
        if self.bytes > 1:
            return values.to(self.dtype).float()
        # Casts to fp8 are slow on a CPU, and saturation differs between devices and torch versions.
        held = _rounded_to(values, 23 + int(math.log2(self.epsilon)))
        subnormal = torch.round(values / self.smallest_subnormal) * self.smallest_subnormal
        held = torch.where(values.abs() < self.smallest_normal, subnormal, held)
        return torch.where(values.abs() > self.largest, values * torch.inf, held)


def _of_dtype(name: str, dtype: torch.dtype, *, largest: float | None = None, epsilon: float | None = None) -> Format:
    """The format of a dtype, unless it has another largest number and epsilon."""
    facts = torch.finfo(dtype)
    epsilon = facts.eps if epsilon is None else epsilon
    return Format(
        name=name,
        dtype=dtype,
        largest=facts.max if largest is None else largest,
        smallest_normal=facts.smallest_normal,
        # finfo has no smallest subnormal: it is the smallest normal times epsilon.
        smallest_subnormal=facts.smallest_normal * epsilon,
        epsilon=epsilon,
    )


def _rounded_to(values: Tensor, dropped: int) -> Tensor:
    """Round to nearest even after dropping this many bits of fp32's fraction."""
    bits = values.contiguous().view(torch.int32)
    half = (1 << (dropped - 1)) - 1
    odd = (bits >> dropped) & 1
    nearest = ((bits + half + odd) >> dropped) << dropped
    return torch.where(values.isfinite(), nearest.view(torch.float32), values)


FP32 = _of_dtype("fp32", torch.float32)
TF32 = _of_dtype("tf32", torch.float32, largest=(2.0 - 2.0**-10) * 2.0**127, epsilon=2.0**-10)
BF16 = _of_dtype("bf16", torch.bfloat16)
FP16 = _of_dtype("fp16", torch.float16)
E4M3 = _of_dtype("fp8_e4m3", torch.float8_e4m3fn)
E5M2 = _of_dtype("fp8_e5m2", torch.float8_e5m2)

FORMATS: dict[str, Format] = {each.name: each for each in (FP32, TF32, BF16, FP16, E4M3, E5M2)}
"""All formats by name, widest first."""


def format_named(name: str) -> Format:
    """The format with this name. Raises UsageError if unknown."""
    found = FORMATS.get(name.lower())
    if found is None:
        raise UsageError(f"expected a number format, not {name!r}", fix=f"one of {', '.join(FORMATS)}")
    return found
