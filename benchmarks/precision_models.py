"""Plain models of known shapes: a LLaMA and ByT5's encoder-decoder, with training text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BYTES = 384
"""Vocabulary of a byte model: 256 plus special tokens, as in ByT5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of a decoder."""

    width: int
    layers: int
    heads: int
    inner: int
    words: int = BYTES


class Block(nn.Module):
    """Attention and gated feed-forward, each after a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm, self.norm = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        y = self.norm(x)
        fed: Tensor = self.down(F.silu(self.gate(y)) * self.up(y))
        return x + fed


class Decoder(nn.Module):
    """A byte-level language model."""

    def __init__(self, shape: Shape, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.words, shape.width)
        self.places = nn.Embedding(length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.words, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T + 1] -> loss of each next byte."""
        given, wanted = ids[:, :-1], ids[:, 1:]
        x = self.embed(given) + self.places(torch.arange(given.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())


SHAPES = {
    "60M": Shape(width=512, layers=18, heads=8, inner=1536),
    "LLaMA 1.2B": Shape(width=2048, layers=24, heads=16, inner=5632, words=32000),
    # ByT5 small: 12 encoder and 4 decoder layers of 1472 with 3584 inside; here one stack of 16.
    "byt5-small": Shape(width=1472, layers=16, heads=8, inner=3584),
}


def text_of(folder: Path) -> Tensor:
    """All Python source in a folder, as bytes."""
    joined = b"\n".join(file.read_bytes() for file in sorted(folder.rglob("*.py")))
    return torch.frombuffer(bytearray(joined), dtype=torch.uint8).long()


def batches(text: Tensor, rows: int, length: int, *, words: int, seed: int, device: str) -> Tensor:
    """A batch of random excerpts [rows, length + 1]; pairs of bytes for a larger vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    wide = 2 if words > BYTES else 1
    starts = torch.randint(0, len(text) - wide * (length + 2), (rows,), generator=generator)
    pieces = torch.stack([text[start : start + wide * (length + 1)] for start in starts.tolist()])
    if wide == 2:
        pieces = (pieces[:, ::2] * 256 + pieces[:, 1::2]) % words
    return pieces.to(device)
