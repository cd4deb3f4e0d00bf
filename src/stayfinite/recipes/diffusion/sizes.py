"""Model sizes from 1M to 900M parameters, and the training cost of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.model import WAVES, Shape

Size = Literal["tiny", "small", "medium", "large", "huge"]


@dataclass(frozen=True, slots=True)
class Measures:
    """Width, depth and heads."""

    width: int
    depth: int
    heads: int


SIZES: dict[Size, Measures] = {
    "tiny": Measures(96, 3, 4),  # 1M
    "small": Measures(256, 6, 4),  # 15M
    "medium": Measures(512, 12, 8),  # 115M
    "large": Measures(768, 18, 12),  # 385M
    "huge": Measures(1024, 24, 16),  # 910M
}
"""Parameter counts exclude the vocabulary."""


def measures_of(size: Size, width: int | None, depth: int | None, heads: int | None) -> Measures:
    """The dimensions of a size, with overrides. Raises UsageError if the heads do not divide the width."""
    known = SIZES[size]
    asked = Measures(width or known.width, depth or known.depth, heads or known.heads)
    if min(asked.width, asked.depth, asked.heads) < 1 or asked.width % asked.heads:
        raise UsageError(
            f"--width {asked.width} with --heads {asked.heads} and --depth {asked.depth}: "
            "expected numbers above 0, the heads dividing the width",
            fix="--width 512 --heads 8 --depth 12, for example",
        )
    return asked


def flops_of_row(shape: Shape) -> int:
    """Training FLOPs of one row: matrix products, forward plus twice that for backward."""
    d, tokens, places = shape.width, shape.length, shape.positions
    both = tokens + places
    block = 2 * both * 12 * d * d + 2 * 2 * 6 * d * d + 4 * both * both * d
    ends = 2 * places * shape.channels * d * 2 + 2 * tokens * d * shape.vocabulary + 2 * 2 * 2 * d * d
    times = 2 * 2 * (2 * WAVES * d + d * d)
    return 3 * (shape.depth * block + ends + times)
