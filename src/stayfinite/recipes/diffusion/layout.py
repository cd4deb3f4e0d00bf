"""Convert a latent array to positions with channels, and back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from stayfinite.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Shape of a latent: vector (D), sequence (positions, channels) or grid (channels, height, width).

    A grid is cut into ``patch`` x ``patch`` squares, one position each.

    Raises:
        UsageError: another number of dimensions, or a grid not divisible by the patch.
    """

    array: tuple[int, ...]
    patch: int = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.array) <= 3 or 0 in self.array:
            raise UsageError(
                f"a latent of shape {list(self.array)}",
                fix="save (D), (positions, channels) or (channels, height, width) per row of tokens",
            )
        if self.patch < 1:
            raise UsageError(f"--patch {self.patch}: expected at least 1", fix="--patch 2, for example")
        if len(self.array) == 3 and any(side % self.patch for side in self.array[1:]):
            raise UsageError(
                f"--patch {self.patch} does not divide a grid of {self.array[1]} x {self.array[2]}",
                fix="--patch 1, or a divisor of both sides",
            )

    @property
    def positions(self) -> int:
        if len(self.array) == 3:
            return (self.array[1] // self.patch) * (self.array[2] // self.patch)
        return self.array[0] if len(self.array) == 2 else 1

    @property
    def channels(self) -> int:
        """Numbers per position."""
        return self.array[0] * self.patch**2 if len(self.array) == 3 else self.array[-1]

    def to_positions(self, latent: Tensor) -> Tensor:
        """(..., *array) -> (..., positions, channels)."""
        ahead = latent.shape[: latent.ndim - len(self.array)]
        if len(self.array) != 3:
            return latent.reshape(*ahead, self.positions, self.channels)
        channels, height, width = self.array
        p = self.patch
        cut = latent.reshape(-1, channels, height // p, p, width // p, p)  # (B, C, h, p, w, p)
        return cut.permute(0, 2, 4, 1, 3, 5).reshape(*ahead, self.positions, self.channels)

    def to_array(self, positions: Tensor) -> Tensor:
        """(..., positions, channels) -> (..., *array)."""
        ahead = positions.shape[:-2]
        if len(self.array) != 3:
            return positions.reshape(*ahead, *self.array)
        channels, height, width = self.array
        p = self.patch
        cut = positions.reshape(-1, height // p, width // p, channels, p, p)  # (B, h, w, C, p, p)
        return cut.permute(0, 3, 1, 4, 2, 5).reshape(*ahead, channels, height, width)
