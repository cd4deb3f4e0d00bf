"""Trainings that something finite, or nearly so, happens to: what a guard is for."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.harm.arms import Arm
from benchmarks.harm.trainings import (
    Grammar,
    Metrics,
    NextToken,
    Pair,
    Source,
    harmful,
    loss_with,
    measured,
    mlp,
    taught,
)


class Sines:
    """Regression to a sum of sines, and a model for it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.model = mlp(8, 64, 64, 1)
        self.loss = loss_with(self.model, F.mse_loss)
        self.direction = self.source.normal(8) / 2

    def batch(self, rows: int = 32) -> Pair:
        x = self.source.normal(rows, 8)
        return x, torch.sin(x @ self.direction)[:, None] + 0.05 * self.source.normal(rows, 1)

    def result(self) -> Metrics:
        return {"loss": measured(self.loss, self.batch(4096))}


@harmful
def stale_second_moment(arm: Arm, source: Source) -> Metrics:
    """Rows are known by heart, so Adam's second moments have faded; one batch of another kind moves every weight."""
    model = mlp(16, 128, 128, 5)
    x, y = source.normal(64, 16), source.integers(5, 64)
    loss_of = loss_with(model, F.cross_entropy)

    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    loop = arm.take(model, optimizer, forward=loss_of)
    for step in range(1400):
        places = source.integers(64, 16)
        batch = (x[places], y[places])
        if step in (900, 1300):
            batch = (3 * source.normal(16, 16), source.integers(5, 16))
        loop.step(loop.forward(batch))
    return {"loss": measured(loss_of, (x, y))}


@harmful
def corrupt_shard(arm: Arm, source: Source) -> Metrics:
    """A language model; 20 batches in a row are one token repeated, two thirds into training."""
    grammar = Grammar(source, 0, 32)
    model = NextToken(32)
    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=3e-3), max_norm=1.0, forward=model)
    for step in range(900):
        texts = grammar.texts(source, 8, 16)
        if 800 <= step < 820:
            texts = torch.full_like(texts, 7)
        loop.step(loop.forward(texts))
    return {"loss": measured(model, grammar.texts(source, 512, 16))}


@harmful
def shard_of_noise(arm: Arm, source: Source) -> Metrics:
    """A classifier by SGD; 20 batches of noise at 30 times the usual scale with random labels."""
    teacher, model = mlp(10, 32, 5), mlp(10, 64, 5)
    batch_of = partial(taught, teacher, source, 10, sharpness=4)

    loss_of = loss_with(model, F.cross_entropy)

    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), forward=loss_of)
    for step in range(1200):
        bad = 1100 <= step < 1120
        loop.step(loop.forward((30 * source.normal(32, 10), source.integers(5, 32)) if bad else batch_of(32)))
    return {"loss": measured(loss_of, batch_of(8192))}


@harmful
def rate_times_100(arm: Arm, source: Source) -> Metrics:
    """The learning rate is 100 times as high for 3 steps, near the end."""
    grammar = Grammar(source, 0, 32)
    model = NextToken(32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loop = arm.take(model, optimizer, forward=model)
    for step in range(1200):
        optimizer.param_groups[0]["lr"] = 0.3 if 1100 <= step < 1103 else 3e-3
        loop.step(loop.forward(grammar.texts(source, 8, 16)))
    return {"loss": measured(model, grammar.texts(source, 512, 16))}


@harmful
def one_row_unscaled(arm: Arm, source: Source) -> Metrics:
    """Regression by SGD; at three steps one row of the batch was never normalized: 1,000 times as large."""
    task = Sines(source)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.02, momentum=0.9)
    loop = arm.take(task.model, optimizer, forward=task.loss)
    for step in range(1200):
        x, y = task.batch()
        if step in (300, 700, 1100):
            x[0] *= 1000
            y[0] *= 1000
        loop.step(loop.forward((x, y)))
    return task.result()


@harmful
def sensor_glitches(arm: Arm, source: Source) -> Metrics:
    """Regression by Adam; in one batch of 50 a target is 10,000 instead of near 1."""
    task = Sines(source)
    loop = arm.take(task.model, torch.optim.Adam(task.model.parameters(), lr=2e-3), forward=task.loss)
    for step in range(1500):
        x, y = task.batch()
        if step > 100 and task.source.chance(0.02):
            y[0] = 1e4
        loop.step(loop.forward((x, y)))
    return task.result()


@harmful
def a_loss_not_divided(arm: Arm, source: Source) -> Metrics:
    """Every 200th batch is summed over 5,000 rows instead of averaged, by SGD."""
    task = Sines(source)
    loop = arm.take(
        task.model, torch.optim.SGD(task.model.parameters(), lr=0.05), forward=lambda b: task.loss(b[0]) * b[1]
    )
    for step in range(1200):
        loop.step(loop.forward((task.batch(), 5000.0 if step % 200 == 100 else 1.0)))
    return task.result()


@harmful
def flipped_bit(arm: Arm, source: Source) -> Metrics:
    """A bit flips in a gradient on its way: one element becomes huge, and the loss says nothing of it."""
    task = Sines(source)
    flip = {"now": False}

    def spoil(gradient: Tensor) -> Tensor:
        if not flip["now"]:
            return gradient
        gradient = gradient.clone()
        gradient.view(-1)[3] = 1e18
        return gradient

    next(task.model.parameters()).register_hook(spoil)
    loop = arm.take(task.model, torch.optim.Adam(task.model.parameters(), lr=2e-3), forward=task.loss)
    for step in range(1000):
        flip["now"] = step in (400, 900)
        loss = loop.forward(task.batch())
        loop.step(loss)
    return task.result()


@harmful
def not_finite_now_and_then(arm: Arm, source: Source) -> Metrics:
    """One batch in 100 holds a NaN, and one in 100 an infinity."""
    task = Sines(source)
    loop = arm.take(task.model, torch.optim.AdamW(task.model.parameters(), lr=2e-3), forward=task.loss)
    for _ in range(1000):
        x, y = task.batch()
        if task.source.chance(0.02):
            x[3, 4] = float("nan") if task.source.chance(0.5) else float("inf")
        loop.step(loop.forward((x, y)))
    return task.result()


@harmful
def flipped_weight(arm: Arm, source: Source) -> Metrics:
    """A bit flips in a weight: one element is 300 from one step to the next."""
    task = Sines(source)
    loop = arm.take(task.model, torch.optim.Adam(task.model.parameters(), lr=1e-3), forward=task.loss)
    weight = next(task.model.parameters())
    for step in range(1000):
        if step == 800:
            with torch.no_grad():
                weight[3, 4] = 300.0
        loop.step(loop.forward(task.batch()))
    return task.result()


class Layer(nn.Module):
    """Attention over what came before, then a feed-forward net."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """The same texts, one layer on."""
        q, k, v = self.qkv(self.one(x)).chunk(3, dim=-1)
        logits = (q @ k.transpose(1, 2)) / q.shape[-1] ** 0.5
        hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        x = x + self.out(torch.softmax(logits.masked_fill(hidden, float("-inf")), dim=-1) @ v)
        moved: Tensor = x + self.down(F.gelu(self.up(self.two(x))))
        return moved


class Attention(nn.Module):
    """A small causal transformer without normalized queries, in bf16: logits may grow until attention is a step."""

    def __init__(self, vocabulary: int, width: int = 32, layers: int = 2, length: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mean loss over a batch of texts."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.embed(tokens[:, :-1]) + self.place[: tokens.shape[1] - 1]
            for layer in self.layers:
                x = layer(x)
            return F.cross_entropy(self.head(x).flatten(0, 1).float(), tokens[:, 1:].flatten())


@harmful
def attention_logits_grow(arm: Arm, source: Source) -> Metrics:
    """A transformer in bf16 whose attention logits run away under a rate that is 50 times too high for 8 steps."""
    grammar = Grammar(source, 0, 24)
    model = Attention(24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    loop = arm.take(model, optimizer, max_norm=1.0, forward=model)
    for step in range(450):
        optimizer.param_groups[0]["lr"] = 0.15 if 350 <= step < 358 else 3e-3
        loop.step(loop.forward(grammar.texts(source, 8, 20)))
    return {"loss": measured(model, grammar.texts(source, 256, 20))}
