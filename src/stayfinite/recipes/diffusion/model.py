"""Multimodal diffusion transformer: a text stream and a latent stream with joint attention.

Each stream has its own weights. Attention spans both. The two time steps, which may differ, modulate the norms of every
block. For half precision, residuals stay in float32, queries and keys are normalized, and gates start small.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.errors import UsageError

WAVES = 128
"""Frequencies of the time embedding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Hyperparameters of a model."""

    vocabulary: int
    """Tokens, without the mask token."""
    length: int
    """Maximum tokens per text."""
    positions: int
    """Positions of a latent."""
    channels: int
    """Numbers per position."""
    width: int
    depth: int
    heads: int
    dropout: float = 0.0


class MMDiT(nn.Module):
    """Predicts the clean text and latent from noisy ones."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.width
        self.text_in = nn.Embedding(shape.vocabulary + 1, width)  # the last row is the mask token
        self.text_place = nn.Parameter(torch.empty(shape.length, width))
        self.latent_in = nn.Linear(shape.channels, width)
        self.latent_place = nn.Parameter(torch.empty(shape.positions, width))
        self.text_time = _time_network(width)
        self.latent_time = _time_network(width)
        self.blocks = nn.ModuleList(Block(width, shape.heads, shape.dropout) for _ in range(shape.depth))
        self.text_out = Output(width, shape.vocabulary)
        self.latent_out = Output(width, shape.channels)
        self._begin()

    @property
    def hidden_token(self) -> int:
        """Id of the mask token."""
        return self.shape.vocabulary

    def forward(
        self, ids: Tensor, mask: Tensor, latent: Tensor, text_time: Tensor, latent_time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predict each token and latent position.

        Arguments:
            ids: (B, L) tokens, some masked.
            mask: (B, L) false for padding.
            latent: (B, N, C) noisy, normalized.
            text_time: (B) from 0 (nothing hidden) to 1.
            latent_time: (B) from 0 (no noise) to 1.

        Returns:
            Logits (B, L, V) and prediction (B, N, C), in float32.
        """
        text = self.text_in(ids) + self.text_place[: ids.shape[1]]
        pixels = self.latent_in(latent) + self.latent_place
        text, pixels = text.float(), pixels.float()
        steering = F.silu(self.text_time(waves(text_time)) + self.latent_time(waves(latent_time)))  # (B, D)
        seen = torch.cat([mask, mask.new_ones(latent.shape[:2])], 1)[:, None, None]  # (B, 1, 1, L + N)
        for block in self.blocks:
            text, pixels = block(text, pixels, steering, seen)
        return self.text_out(text, steering).float(), self.latent_out(pixels, steering).float()

    def _begin(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for table in (self.text_in.weight, self.text_place, self.latent_place):
            nn.init.normal_(table)  # as large as the latent input, so that positions matter from the start
        width, gate = self.shape.width, (2 * self.shape.depth) ** -0.5
        for module in self.modules():
            if isinstance(module, Stream):
                # Small constant gates: together all blocks start out adding as much as one at full size.
                nn.init.zeros_(module.steer.weight)
                for start in (2 * width, 5 * width):
                    nn.init.constant_(module.steer.bias[start : start + width], gate)
            elif isinstance(module, Output):
                nn.init.zeros_(module.steer.weight)
                nn.init.normal_(module.say.weight, std=0.02)


class Block(nn.Module):
    """Both streams and their joint attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.text = Stream(width, heads, dropout)
        self.latent = Stream(width, heads, dropout)

    def forward(self, text: Tensor, latent: Tensor, steering: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Both streams after the block. ``seen`` (B, 1, 1, L + N) is the attention mask."""
        text_steer, latent_steer = self.text.steered(steering), self.latent.steered(steering)
        a, b = self.text.ask(text, text_steer), self.latent.ask(latent, latent_steer)
        q, k, v = (torch.cat(pair, 2) for pair in zip(a, b, strict=True))  # (B, H, L + N, D / H)
        met = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        of_text, of_latent = met.split([text.shape[1], latent.shape[1]], 1)
        return self.text.answer(text, of_text, text_steer), self.latent.answer(latent, of_latent, latent_steer)


class Stream(nn.Module):
    """One stream of a block."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.steer = nn.Linear(width, 6 * width)
        self.attend = nn.Linear(width, 3 * width)
        self.query_norm = HeadNorm(width // heads)
        self.key_norm = HeadNorm(width // heads)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def steered(self, steering: Tensor) -> tuple[Tensor, ...]:
        """Shift, scale and gate, (B, 1, D) each, for attention and MLP."""
        steer: Tensor = self.steer(steering)
        return steer[:, None].chunk(6, -1)

    def ask(self, x: Tensor, steer: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B, H, T, D / H) each."""
        batch, length, width = x.shape
        parts = self.attend(modulated(x, steer[0], steer[1])).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return self.query_norm(q), self.key_norm(k), v

    def answer(self, x: Tensor, met: Tensor, steer: tuple[Tensor, ...]) -> Tensor:
        """Add the attention output and the MLP to the stream."""
        x = x + steer[2] * self.drop(self.project(met))
        thought: Tensor = self.drop(self.mlp(modulated(x, steer[3], steer[4])))
        return x + steer[5] * thought


class HeadNorm(nn.Module):
    """RMS norm of each head's queries or keys, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, T, D / H), same dtype as the input."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * self.weight).to(x.dtype)


class Output(nn.Module):
    """Final norm and projection."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.steer = nn.Linear(width, 2 * width)
        self.say = nn.Linear(width, size)

    def forward(self, x: Tensor, steering: Tensor) -> Tensor:
        """(B, T, size)."""
        shift, scale = self.steer(steering)[:, None].chunk(2, -1)
        said: Tensor = self.say(modulated(x, shift, scale))
        return said


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm in float32 with shift and scale."""
    return F.layer_norm(x.float(), x.shape[-1:], eps=1e-6) * (1 + scale.float()) + shift.float()


def waves(time: Tensor) -> Tensor:
    """Sinusoidal embedding of times in [0, 1], (B, 2 * WAVES) in float32."""
    rates = torch.exp(-math.log(10_000.0) / WAVES * torch.arange(WAVES, device=time.device, dtype=torch.float32))
    angles = 1000.0 * time.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], -1)


def _time_network(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * WAVES, width), nn.SiLU(), nn.Linear(width, width))


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
