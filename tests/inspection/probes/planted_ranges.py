"""Models in which some numbers leave fp16's range, near misses of them, and healthy ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LIMIT = 65504.0


class Block(nn.Module):
    """A residual block with a gated feed-forward, as T5's."""

    def __init__(self, width: int, gated: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wi_0, self.wi_1 = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.wo = nn.Linear(2 * width, width)
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        hidden = functional.gelu(self.wi_0(h)) * self.wi_1(h) if self.gated else functional.gelu(self.wi_0(h))
        return x + self.wo(hidden)


class Attention(nn.Module):
    """Attention written out, with or without its scaling and a mask."""

    def __init__(self, width: int, scaling: float = 1.0, masked: float | None = None) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.scaling, self.masked = scaling, masked

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.matmul(self.q(x), self.k(x).transpose(-1, -2)) * self.scaling
        if self.masked is not None:
            shut = torch.ones(x.shape[1], x.shape[1]).triu(1) * self.masked
            scores = scores + shut
        return torch.matmul(scores.softmax(-1), self.v(x))


class Fused(nn.Module):
    """Attention by torch's own function, with a mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        shut = torch.zeros(x.shape[1], x.shape[1]).masked_fill(
            torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), torch.finfo(torch.float32).min
        )
        q, k, v = (f(x).unsqueeze(1) for f in (self.q, self.k, self.v))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=shut).squeeze(1)


class Language(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, *blocks: nn.Module, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids.flatten())


class Images(nn.Module):
    """Convolutions with normalization after each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3), nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.second(functional.relu(self.norm(self.first(images))))
        return functional.cross_entropy(self.head(x.mean((2, 3))), torch.arange(len(images)) % 5)


class Recurrent(nn.Module):
    """A projection, an LSTM and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.lstm, self.head = nn.Linear(6, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(torch.tanh(self.project(x)))
        return functional.cross_entropy(self.head(out[:, -1]), torch.arange(len(x)) % 3)


class Experts(nn.Module):
    """Two experts; each row is sent to one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.stack([self.experts[row % 3](x[row]).float() for row in range(len(x))])
        return functional.cross_entropy(self.head(self.norm(out)), torch.arange(len(x)) % 3)


def ids() -> Tensor:
    return torch.randint(0, 11, (3, 6), generator=torch.Generator().manual_seed(1))


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def enlarged(model: nn.Module, path: str, batch: Tensor, reach: float) -> nn.Module:
    """Scale a linear layer or convolution so that its largest output in fp32 is this."""
    module = model.get_submodule(path)
    seen: list[float] = []
    hook = module.register_forward_hook(lambda _m, _i, out: seen.append(float(out.detach().abs().max())))
    with torch.no_grad():
        model(batch)
        hook.remove()
        for parameter in module.parameters():
            parameter.mul_(reach / max(seen))
    return model


Made = tuple[nn.Module, Tensor]
Maker = Callable[[float], Made]
"""Gives a model whose planted place reaches this many times fp16's largest number."""


def feed_forward(times: float) -> Made:
    model = Language(Block(16), Block(16), Block(16))
    return enlarged(model, "blocks.1.wi_0", ids(), times * LIMIT), ids()


def output_projection(times: float) -> Made:
    model = Language(Block(16), Block(16))
    return enlarged(model, "blocks.0.wo", ids(), times * LIMIT), ids()


def residual_growth(times: float) -> Made:
    """Each block adds what fp16 can hold; their sum is in fp32, and overflows where the head casts it."""
    model = Language(*(Block(16) for _ in range(4)))
    model.norm = nn.Identity()
    for block in range(4):
        enlarged(model, f"blocks.{block}.wo", ids(), 0.4 * LIMIT)
    seen: list[float] = []
    hook = model.head.register_forward_pre_hook(lambda _m, inputs: seen.append(float(inputs[0].abs().max())))
    with torch.no_grad():
        model(ids())
        hook.remove()
        for block in range(4):
            for parameter in model.get_submodule(f"blocks.{block}.wo").parameters():
                parameter.mul_(times * LIMIT / seen[0])
        model.head.weight.mul_(1e-5)
    return model, ids()


def gated_product(times: float) -> Made:
    model = Language(Block(16, gated=True), Block(16, gated=True))
    block: Any = model.blocks[1]
    each = math.sqrt(1.0 * LIMIT)
    for path in ("blocks.1.wi_0", "blocks.1.wi_1"):
        enlarged(model, path, ids(), each)
    seen: list[Tensor] = []
    hook = block.wo.register_forward_hook(lambda _m, inputs, _o: seen.append(inputs[0].detach()))
    with torch.no_grad():
        model(ids())
        hook.remove()
        factor = times * LIMIT / float(seen[0].abs().max())
        for parameter in block.wi_1.parameters():
            parameter.mul_(factor)
        block.wo.weight.mul_(1e-5)
    return model, ids()


def attention_scores(times: float) -> Made:
    model = Language(Attention(16), Attention(16, masked=-1e9))
    block: Any = model.blocks[0]
    with torch.no_grad():
        x = model.embed(ids())
        largest = float(torch.matmul(block.q(x), block.k(x).transpose(-1, -2)).abs().max())
        for layer in (block.q, block.k):
            for parameter in layer.parameters():
                parameter.mul_(math.sqrt(times * LIMIT / largest))
    return model, ids()


def convolution(times: float) -> Made:
    model = Images()
    return enlarged(model, "first", rows(4, 3, 9, 9), times * LIMIT), rows(4, 3, 9, 9)


def unscaled_pixels(times: float) -> Made:
    model = Images()
    images = rows(4, 3, 9, 9)
    return model, images * (times * LIMIT / float(images.abs().max()))


def embedding(times: float) -> Made:
    """The embedding stays in fp32; the first projection is given what fp16 cannot hold."""
    model = Language(Attention(16))
    with torch.no_grad():
        model.embed.weight.mul_(times * LIMIT / float(model.embed(ids()).abs().max()))
        for layer in (model.blocks[0].q, model.blocks[0].k, model.blocks[0].v):
            layer.weight.mul_(1e-5)
    return model, ids()


def one_expert(times: float) -> Made:
    return enlarged(Experts(), "experts.1.0", rows(5, 8), times * LIMIT), rows(5, 8)


def recurrent_input(times: float) -> Made:
    return enlarged(Recurrent(), "project", rows(4, 5, 6), times * LIMIT), rows(4, 5, 6)


def head(times: float) -> Made:
    model = Language(Block(16))
    return enlarged(model, "head", ids(), times * LIMIT), ids()


PLANTED: dict[str, Maker] = {
    make.__name__: make
    for make in (
        feed_forward, output_projection, residual_growth, gated_product, attention_scores, convolution, unscaled_pixels,
        embedding, one_expert, recurrent_input, head,
    )
}  # fmt: skip

HEALTHY: dict[str, Callable[[], Made]] = {
    "language": lambda: (Language(Block(16), Block(16, gated=True)), ids()),
    "attention with -inf": lambda: (Language(Attention(16, 0.25, masked=-1e30)), ids()),
    "fused attention with the least number": lambda: (Language(Fused(16)), ids()),
    "images": lambda: (Images(), rows(4, 3, 9, 9)),
    "recurrent": lambda: (Recurrent(), rows(4, 5, 6)),
    "experts": lambda: (Experts(), rows(5, 8)),
}
