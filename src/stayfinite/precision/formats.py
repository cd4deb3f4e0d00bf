"""Number formats that training computes in: their ranges, their rounding, and the cards that have them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.rules.cards import Card

VOLTA = (7, 0)
"""The first architecture with fp16 matrix products in tensor cores."""
_TF32_DROPPED = 13
"""Of fp32's 23 bits of fraction, those that TF32 does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One number format."""

    name: str
    dtype: torch.dtype
    """What tensors of it are stored as; TF32 has no dtype of its own and is stored as fp32."""
    largest: float
    smallest_normal: float
    smallest_subnormal: float
    """Half of this and less becomes 0."""
    epsilon: float
    """From 1 to the next number."""

    @property
    def bytes(self) -> int:
        """What one number takes in memory."""
        return self.dtype.itemsize

    def on(self, card: Card) -> bool:
        """Whether the card multiplies matrices of it in hardware."""
        if self.name == "fp32":
            return True
        if self.name == "fp16":
            return card.amd or card.capability >= VOLTA
        if self.name in ("bf16", "tf32"):
            return card.bf16 if self.name == "bf16" else card.tf32
        return card.fp8

    def rounded(self, values: Tensor) -> Tensor:
        """The values as this format holds them, in fp32: infinite where they do not fit."""
        values = values.float()
        if self.name == "fp32":
            return values
        if self.name == "tf32":
            return _rounded_to(values, _TF32_DROPPED)
        if self.bytes > 1:
            return values.to(self.dtype).float()
        # Casts to fp8 are slow on a CPU, and whether they saturate differs between devices and versions of torch.
        held = _rounded_to(values, 23 + int(math.log2(self.epsilon)))
        held = torch.where(
            values.abs() < self.smallest_normal,
            torch.round(values / self.smallest_subnormal) * self.smallest_subnormal,
            held,
        )
        return torch.where(values.abs() > self.largest, values * torch.inf, held)


def _of_dtype(name: str, dtype: torch.dtype) -> Format:
    facts = torch.finfo(dtype)
    # finfo's smallest_normal is the least normal number; below it, steps of epsilon times that.
    return Format(
        name=name,
        dtype=dtype,
        largest=facts.max,
        smallest_normal=facts.smallest_normal,
        smallest_subnormal=facts.smallest_normal * facts.eps,
        epsilon=facts.eps,
    )


def _tf32() -> Format:
    full, epsilon = torch.finfo(torch.float32), 2.0**-10
    return Format(
        name="tf32",
        dtype=torch.float32,
        largest=(2.0 - epsilon) * 2.0**127,
        smallest_normal=full.smallest_normal,
        smallest_subnormal=full.smallest_normal * epsilon,
        epsilon=epsilon,
    )


def _rounded_to(values: Tensor, dropped: int) -> Tensor:
    """To the nearest number without the last so many bits of fp32's fraction, ties to even."""
    bits = values.contiguous().view(torch.int32)
    half = (1 << (dropped - 1)) - 1
    odd = (bits >> dropped) & 1
    nearest = ((bits + half + odd) >> dropped) << dropped
    return torch.where(values.isfinite(), nearest.view(torch.float32), values)


FP32 = _of_dtype("fp32", torch.float32)
TF32 = _tf32()
BF16 = _of_dtype("bf16", torch.bfloat16)
FP16 = _of_dtype("fp16", torch.float16)
E4M3 = _of_dtype("fp8_e4m3", torch.float8_e4m3fn)
E5M2 = _of_dtype("fp8_e5m2", torch.float8_e5m2)

FORMATS: dict[str, Format] = {each.name: each for each in (FP32, TF32, BF16, FP16, E4M3, E5M2)}
"""Every format by its name, the widest first."""


def format_named(name: str) -> Format:
    """The format of this name. Raises UsageError for others."""
    found = FORMATS.get(name.lower())
    if found is None:
        raise UsageError(f"expected a number format, not {name!r}", fix=f"one of {', '.join(FORMATS)}")
    return found


def format_of(dtype: torch.dtype) -> Format | None:
    """The format that a dtype stores; None where it is none of those here."""
    return next((each for each in FORMATS.values() if each.dtype is dtype and each.name != "tf32"), None)
