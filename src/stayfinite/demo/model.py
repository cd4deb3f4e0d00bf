"""A small T5: encoder and decoder in plain torch, on bytes.

It keeps what makes T5 T5: RMS norm without bias before each sublayer, relative position buckets shared by a stack,
attention without the 1/sqrt(d) factor (the initialization carries it), a ReLU feed-forward without bias, and one
embedding table that is also the output layer. Shapes: B rows, S source bytes, T target bytes, D model width, H heads.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stayfinite.demo.task import MARKS, PAD, START, VOCABULARY

NEVER = -1e9
"""Added to the attention score of masked positions; finite, so a row of pads stays finite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The size of the model; the defaults train in seconds on two CPU cores."""

    width: int = 48
    heads: int = 6
    head_width: int = 8
    hidden: int = 64
    encoder_blocks: int = 1
    decoder_blocks: int = 2
    buckets: int = 32
    max_distance: int = 64


class RMSNorm(nn.Module):
    """Scale to unit root mean square, in fp32 whatever the input; no mean, no bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


class Attention(nn.Module):
    """Multi-head attention over `memory` (or over `x` itself), with an additive bias [B or 1, H, T, S]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        inner = shape.heads * shape.head_width
        self.heads = shape.heads
        self.q = nn.Linear(shape.width, inner, bias=False)
        self.k = nn.Linear(shape.width, inner, bias=False)
        self.v = nn.Linear(shape.width, inner, bias=False)
        self.o = nn.Linear(inner, shape.width, bias=False)
        nn.init.normal_(self.q.weight, std=(shape.width * shape.head_width) ** -0.5)
        nn.init.normal_(self.k.weight, std=shape.width**-0.5)
        nn.init.normal_(self.v.weight, std=shape.width**-0.5)
        nn.init.normal_(self.o.weight, std=inner**-0.5)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, T, D/H]
        k = self.k(memory).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, S, D/H]
        v = self.v(memory).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        scores = (q @ k.transpose(-1, -2)).float() + bias  # [B, H, T, S]
        mixed = scores.softmax(-1).to(v.dtype) @ v  # [B, H, T, D/H]
        out: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return out  # [B, T, D]


class FeedForward(nn.Module):
    """wo(relu(wi(x))): the product in which T5 overflows fp16."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.wi = nn.Linear(shape.width, shape.hidden, bias=False)
        self.wo = nn.Linear(shape.hidden, shape.width, bias=False)
        nn.init.normal_(self.wi.weight, std=shape.width**-0.5)
        nn.init.normal_(self.wo.weight, std=shape.hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.wo(F.relu(self.wi(x)))
        return out


class Block(nn.Module):
    """Self-attention, cross-attention in a decoder, and feed-forward; each with pre-norm and residual."""

    def __init__(self, shape: Shape, *, decoder: bool) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.cross_norm = RMSNorm(shape.width) if decoder else None
        self.cross = Attention(shape) if decoder else None
        self.ff_norm = RMSNorm(shape.width)
        self.ff = FeedForward(shape)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None, memory_bias: Tensor | None) -> Tensor:
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, bias)
        if self.cross is not None and self.cross_norm is not None:
            x = x + self.cross(self.cross_norm(x), memory, memory_bias)
        out: Tensor = x + self.ff(self.ff_norm(x))
        return out


class Stack(nn.Module):
    """Blocks that share one table of relative position biases, and a norm at the end."""

    def __init__(self, shape: Shape, *, decoder: bool) -> None:
        super().__init__()
        self.decoder = decoder
        self.buckets, self.max_distance = shape.buckets, shape.max_distance
        self.relative_bias = nn.Embedding(shape.buckets, shape.heads)
        nn.init.normal_(self.relative_bias.weight, std=shape.width**-0.5)
        depth = shape.decoder_blocks if decoder else shape.encoder_blocks
        self.block = nn.ModuleList(Block(shape, decoder=decoder) for _ in range(depth))
        self.final_norm = RMSNorm(shape.width)

    def forward(
        self, x: Tensor, hidden: Tensor, memory: Tensor | None = None, memory_bias: Tensor | None = None
    ) -> Tensor:
        """x [B, T, D]; `hidden` is an additive mask that broadcasts to [B, H, T, T]."""
        place = torch.arange(x.shape[1], device=x.device)
        distance = place[None, :] - place[:, None]  # [T, T], key minus query
        bucket = relative_bucket(distance, not self.decoder, self.buckets, self.max_distance)
        bias = self.relative_bias(bucket).permute(2, 0, 1)[None] + hidden
        for block in self.block:
            x = block(x, bias, memory, memory_bias)
        out: Tensor = self.final_norm(x)
        return out


class TinyT5(nn.Module):
    """`forward(source, target)` is the mean cross-entropy of the target bytes; `translate(source)` decodes greedily."""

    def __init__(self, shape: Shape | None = None) -> None:
        super().__init__()
        shape = shape or Shape()
        self.scale = shape.width**-0.5
        self.shared = nn.Embedding(VOCABULARY, shape.width)
        self.encoder = Stack(shape, decoder=False)
        self.decoder = Stack(shape, decoder=True)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """source [B, S] -> memory [B, S, D] and the bias [B, 1, 1, S] that hides its padding."""
        padding = (source == PAD)[:, None, None, :] * NEVER
        return self.encoder(self.shared(source), padding), padding

    def decode(self, given: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """The logits [B, T, V] of the byte after each of `given` [B, T]."""
        future = torch.full((given.shape[1], given.shape[1]), NEVER, device=given.device).triu(1)
        x = self.decoder(self.shared(given), future, memory, padding)
        return F.linear(x * self.scale, self.shared.weight)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        given = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], dim=1)
        logits = self.decode(given, *self.encode(source))
        return F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=PAD)

    @torch.no_grad()
    def translate(self, source: Tensor, length: int) -> Tensor:
        """Most likely byte at each of `length` positions, [B, length]; bytes after an end mark are meaningless."""
        memory, padding = self.encode(source)
        given = torch.full_like(source[:, :1], START)
        for _ in range(length):
            best = self.decode(given, memory, padding)[:, -1].argmax(-1)
            given = torch.cat([given, best[:, None]], dim=1)
        return given[:, 1:]


def relative_bucket(distance: Tensor, both_ways: bool, buckets: int, max_distance: int) -> Tensor:
    """T5's buckets: one per distance when near, logarithmically wider when far, the last for all beyond."""
    bucket = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        bucket = bucket + (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    near = buckets // 2
    ratio = (distance.float().clamp(min=1) / near).log() / math.log(max_distance / near)
    far = (near + (ratio * (buckets - near)).long()).clamp(max=buckets - 1)
    return bucket + torch.where(distance < near, distance, far)


FEATURE = 0
"""Embedding dimension that marks the chosen byte."""
RESTING, RAISED = -4.0, 20.0
"""Its value for other bytes and for the chosen one: ReLU keeps the neuron silent at rest, with room for drift."""
GAIN = 200.0
"""How strongly the neuron reads that dimension, and how strongly it writes."""


@torch.no_grad()
def plant_outlier(model: TinyT5, character: str) -> None:
    """Make one feed-forward neuron of the last encoder block respond enormously to the last byte of `character`.

    So it is in models pre-trained in bf16, which reaches 3e38: the feed-forward layers of T5 checkpoints have a few
    neurons that respond to a few tokens with enormous values; the product of `wo` then exceeds 65,504, the largest fp16
    number, and fine-tuning in fp16 gives inf, then NaN. A randomly initialized model has no such neuron and grows none
    in seconds. Only weights are planted. They are ordinary fp32 numbers, and fp32 and bf16 train with them undisturbed;
    the overflow comes from fp16 arithmetic alone.
    """
    embedding = model.shared.weight
    embedding[:, FEATURE] = RESTING
    embedding[MARKS + character.encode()[-1], FEATURE] = RAISED
    feed_forward = model.encoder.block[-1].get_submodule("ff")
    assert isinstance(feed_forward, FeedForward)
    feed_forward.wi.weight[0] = 0.0
    feed_forward.wi.weight[0, FEATURE] = GAIN
    feed_forward.wo.weight[:, 0] = 0.0
    feed_forward.wo.weight[FEATURE, 0] = GAIN
