"""How each float format encodes NaN and infinity. Without the sign bit, the bits grow with the magnitude."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberFormat:
    """One floating-point format."""

    number: torch.dtype
    bits: torch.dtype
    """Integer dtype of the same width."""

    mask: int
    """All bits but the sign."""

    bad_from: int
    """Masked bits from here on are infinity or NaN."""

    nan_from: int
    """Masked bits from here on are NaN."""

    lanes: int = 1
    """Numbers per element: 2 for complex dtypes."""

    negative_zero_is_nan: bool = False


def _ieee(name: str, bits: torch.dtype, infinity: int, lanes: int = 1) -> NumberFormat:
    mask = (1 << (8 * bits.itemsize - 1)) - 1
    number = getattr(torch, name)
    return NumberFormat(number=number, bits=bits, mask=mask, bad_from=infinity, nan_from=infinity + 1, lanes=lanes)


def _finite(name: str, bits: torch.dtype, mask: int, nan: int, *, zero: bool = False) -> NumberFormat:
    number = getattr(torch, name, torch.float8_e4m3fn)
    return NumberFormat(number=number, bits=bits, mask=mask, bad_from=nan, nan_from=nan, negative_zero_is_nan=zero)


_DOUBLE, _SINGLE, _HALF = 0x7FF0000000000000, 0x7F800000, 0x7C00

FORMATS = {
    "F64": _ieee("float64", torch.int64, _DOUBLE),
    "C128": _ieee("float64", torch.int64, _DOUBLE, lanes=2),
    "F32": _ieee("float32", torch.int32, _SINGLE),
    "C64": _ieee("float32", torch.int32, _SINGLE, lanes=2),
    "F16": _ieee("float16", torch.int16, _HALF),
    "C32": _ieee("float16", torch.int16, _HALF, lanes=2),
    "BF16": _ieee("bfloat16", torch.int16, 0x7F80),
    "F8_E5M2": _ieee("float8_e5m2", torch.int8, 0x7C),
    # One NaN per sign and no infinity; unsigned with one NaN; one NaN, encoded as minus zero.
    "F8_E4M3": _finite("float8_e4m3fn", torch.int8, 0x7F, 0x7F),
    "F8_E8M0": _finite("float8_e8m0fnu", torch.uint8, 0xFF, 0xFF),
    "F8_E4M3FNUZ": _finite("float8_e4m3fnuz", torch.int16, 0x7F, 0x80, zero=True),
    "F8_E5M2FNUZ": _finite("float8_e5m2fnuz", torch.int16, 0x7F, 0x80, zero=True),
}
"""Keyed like ``dtypes.BYTES``."""

WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by byte width, for elements that are always finite."""
