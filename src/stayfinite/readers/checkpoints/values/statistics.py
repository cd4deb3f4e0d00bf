"""Exact statistics of a piece of a tensor.

Infinity and NaN show in the smallest or the largest number. One pass therefore rules both out, several times faster
than ``isfinite``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stayfinite.readers.checkpoints.facts import BYTES, Place, TensorValues

NUMBERS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C128": "float64", "C64": "float32",
    "C32": "float16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
"""The torch dtype of each float, and of the two halves of each complex number."""

CHECKED = {name: getattr(torch, number) for name, number in NUMBERS.items() if hasattr(torch, number)}
"""Those that this version of torch has."""


@dataclass(slots=True)
class Tally:
    """Statistics of a tensor so far. ``add`` accepts pieces in any order."""

    nan: int = 0
    infinite: int = 0
    first: int | None = None
    """First non-finite element, counted from the tensor's first byte."""

    low: float = math.inf
    high: float = -math.inf
    """The smallest and the largest finite number."""

    def add(self, other: Tally) -> None:
        """Merge the tally of another piece."""
        self.nan += other.nan
        self.infinite += other.infinite
        if other.first is not None:
            self.first = other.first if self.first is None else min(self.first, other.first)
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)


def tally(place: Place, data: Tensor, begin: int) -> Tally:
    """Tally a piece that starts at byte ``begin`` of its tensor."""
    dtype = CHECKED.get(place.dtype)
    found = Tally()
    if dtype is None:
        return found
    # Eight bits have few values, of which only those that occur are converted.
    kinds = data.bincount(minlength=256).nonzero().to(torch.uint8) if dtype.itemsize == 1 else data
    found.low, found.high = _extremes(_numbers(kinds, dtype))
    if not math.isfinite(found.high - found.low):
        _count(found, _numbers(data, dtype), place, begin)
    return found


def values_of(place: Place, found: Tally) -> TensorValues:
    """Convert a finished tally to plain data without torch."""
    return TensorValues(
        nan=found.nan,
        infinite=found.infinite,
        first=None if found.first is None else _index(place, found.first),
        largest=max(found.high, -found.low, 0.0),
        smallest=min(found.low, 0.0) if _is_whole(place) else 0.0,
        constant=found.low if found.low == found.high and not found.nan + found.infinite else None,
    )


def _numbers(data: Tensor, dtype: torch.dtype) -> Tensor:
    numbers = data.flatten().view(dtype)
    return numbers.float() if dtype.itemsize == 1 else numbers


def _extremes(numbers: Tensor) -> tuple[float, float]:
    low, high = numbers.aminmax()
    return float(low), float(high)


def _count(found: Tally, numbers: Tensor, place: Place, begin: int) -> None:
    finite = numbers.isfinite()
    bad, lanes = ~finite, 2 if place.dtype.startswith("C") else 1
    start = begin // BYTES[place.dtype]
    # Elements between those of a strided view belong to other tensors.
    if not _is_whole(place):
        at = bad.nonzero().flatten()
        bad[at[~_inside(place, at // lanes + start)]] = False
    found.nan = int(numbers.isnan().logical_and_(bad).count_nonzero())
    found.infinite = int(bad.count_nonzero()) - found.nan
    if found.nan + found.infinite:
        found.first = int(bad.to(torch.uint8).argmax()) // lanes + start
    found.low, found.high = _extremes(numbers[finite]) if finite.any() else (math.inf, -math.inf)


def _is_whole(place: Place) -> bool:
    """Whether all of its bytes are its own, unlike those of a strided view."""
    return place.stride is None or math.prod(place.shape) * BYTES[place.dtype] >= place.nbytes


def _by_stride(place: Place) -> list[tuple[int, int, int]]:
    """Axis, stride and length, largest stride first; axes of length 1 or stride 0 are left out."""
    assert place.stride is not None
    axes = [(axis, step, n) for axis, (step, n) in enumerate(zip(place.stride, place.shape, strict=True))]
    return sorted((each for each in axes if each[1] > 0 and each[2] > 1), key=lambda each: -each[1])


def _inside(place: Place, at: Tensor) -> Tensor:
    """Which elements, counted from the tensor's first, belong to the strided view."""
    inside = torch.ones_like(at, dtype=torch.bool)
    for _, step, n in _by_stride(place):
        inside &= at // step < n
        at = at % step
    return inside & (at == 0)


def _index(place: Place, flat: int) -> tuple[int, ...]:
    index = [0] * len(place.shape)
    if place.stride is None:
        for axis in range(len(place.shape) - 1, -1, -1):
            flat, index[axis] = divmod(flat, place.shape[axis])
    else:
        for axis, step, _ in _by_stride(place):
            index[axis], flat = divmod(flat, step)
    origin = place.origin or (0,) * len(index)
    return tuple(i + start for i, start in zip(index, origin, strict=True))
