"""A multimodal diffusion transformer: a stream for text, a stream for latents, one attention over both.

Each stream has its own weights; they meet in the attention, where every token and every latent position sees both. The
time steps of the two, which may differ, steer the norms of every block. What is added up stays in float32, queries and
keys are normalized before they meet, and every block begins with a small gate: half precision has nothing to overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WAVES = 128
"""Frequencies that a time step is written in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything that a model is built from."""

    vocabulary: int
    """Tokens, without the mask token."""
    length: int
    """Tokens in a text, at most."""
    positions: int
    """Positions of a latent."""
    channels: int
    """Numbers at each of them."""
    width: int
    depth: int
    heads: int
    dropout: float = 0.0


class MMDiT(nn.Module):
    """Says what a noisy pair of text and latent was made from."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.width
        self.text_in = nn.Embedding(shape.vocabulary + 1, width)  # the last one is the mark of a hidden token
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
        """The id that stands for a hidden token."""
        return self.shape.vocabulary

    def forward(
        self, ids: Tensor, mask: Tensor, latent: Tensor, text_time: Tensor, latent_time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What the model says of each token and of each latent position.

        Arguments:
            ids: (B, L) tokens, some of them hidden.
            mask: (B, L) where they are no padding.
            latent: (B, N, C) noisy, in normalized units.
            text_time: (B) from 0 (nothing is hidden) to 1.
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
            nn.init.normal_(table)  # as large as what a latent brings along: places are seen at once
        width, gate = self.shape.width, (2 * self.shape.depth) ** -0.5
        for module in self.modules():
            if isinstance(module, Stream):
                # Small gates, which no time step moves at first: all blocks together add what one would at full size.
                nn.init.zeros_(module.steer.weight)
                for start in (2 * width, 5 * width):
                    nn.init.constant_(module.steer.bias[start : start + width], gate)
            elif isinstance(module, Output):
                nn.init.zeros_(module.steer.weight)
                nn.init.normal_(module.say.weight, std=0.02)


class Block(nn.Module):
    """Both streams, one attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.text = Stream(width, heads, dropout)
        self.latent = Stream(width, heads, dropout)

    def forward(self, text: Tensor, latent: Tensor, steering: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Both, changed; ``seen`` (B, 1, 1, L + N) says what may be looked at."""
        text_steer, latent_steer = self.text.steered(steering), self.latent.steered(steering)
        a, b = self.text.ask(text, text_steer), self.latent.ask(latent, latent_steer)
        q, k, v = (torch.cat(pair, 2) for pair in zip(a, b, strict=True))  # (B, H, L + N, D / H)
        met = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        of_text, of_latent = met.split([text.shape[1], latent.shape[1]], 1)
        return self.text.answer(text, of_text, text_steer), self.latent.answer(latent, of_latent, latent_steer)


class Stream(nn.Module):
    """One side of a block."""

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
        """Shift, scale and gate, (B, 1, D) each, for the attention and for what follows it."""
        steer: Tensor = self.steer(steering)
        return steer[:, None].chunk(6, -1)

    def ask(self, x: Tensor, steer: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B, H, T, D / H) each."""
        batch, length, width = x.shape
        parts = self.attend(modulated(x, steer[0], steer[1])).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return self.query_norm(q), self.key_norm(k), v

    def answer(self, x: Tensor, met: Tensor, steer: tuple[Tensor, ...]) -> Tensor:
        """The stream after what was found by looking, and after its own thoughts about it."""
        x = x + steer[2] * self.drop(self.project(met))
        thought: Tensor = self.drop(self.mlp(modulated(x, steer[3], steer[4])))
        return x + steer[5] * thought


class HeadNorm(nn.Module):
    """Brings each head's queries, or keys, to one size, computed in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, T, D / H), in the dtype that it came in."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * self.weight).to(x.dtype)


class Output(nn.Module):
    """A last norm, and what the stream has to say."""

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
    """The norm of each position, in float32, steered."""
    return F.layer_norm(x.float(), x.shape[-1:], eps=1e-6) * (1 + scale.float()) + shift.float()


def waves(time: Tensor) -> Tensor:
    """A time step from 0 to 1 as (B, 2 * WAVES) numbers, in float32."""
    rates = torch.exp(-math.log(10_000.0) / WAVES * torch.arange(WAVES, device=time.device, dtype=torch.float32))
    angles = 1000.0 * time.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], -1)


def _time_network(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * WAVES, width), nn.SiLU(), nn.Linear(width, width))
