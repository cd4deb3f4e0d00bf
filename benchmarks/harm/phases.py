"""Healthy trainings that change on the way: other data, other weights, another rate, another head."""

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
    healthy,
    loss_with,
    measured,
    mlp,
    taught,
)


@healthy
def curriculum(arm: Arm, source: Source) -> Metrics:
    """A language model whose text changes twice, each time to one with words that it has not seen."""
    kinds = [Grammar(source, 16 * i, 16) for i in range(3)]
    model = NextToken(48)
    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=2e-3), forward=model)
    for step in range(1500):
        loop.step(loop.forward(kinds[step // 500].texts(source, 8, 16)))
    return {"loss": measured(model, kinds[2].texts(source, 256, 16))}


@healthy
def curriculum_of_regression(arm: Arm, source: Source) -> Metrics:
    """Regression whose targets grow tenfold in the middle, by SGD with momentum."""
    model = mlp(8, 64, 1)
    direction = source.normal(8) / 2

    def batch_of(scale: float, rows: int = 32) -> Pair:
        x = source.normal(rows, 8)
        return x, scale * torch.sin(x @ direction)[:, None] + 0.1 * source.normal(rows, 1)

    loss_of = loss_with(model, F.mse_loss)

    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=3e-3, momentum=0.9), forward=loss_of)
    for step in range(1500):
        loop.step(loop.forward(batch_of(1.0 if step < 700 else 10.0)))
    return {"loss": measured(loss_of, batch_of(10.0, 4096))}


@healthy
def another_source(arm: Arm, source: Source) -> Metrics:
    """An image-like classifier whose inputs come from another camera from step 800 on: brighter, wider."""
    centres = source.normal(6, 20)
    model = mlp(20, 64, 6)

    def batch_of(camera: int, rows: int = 32) -> Pair:
        y = source.integers(6, rows)
        x = centres[y] + 0.5 * source.normal(rows, 20)
        return (x if camera == 0 else 4.0 * x.flip(1) + 3.0), y

    loss_of = loss_with(model, F.cross_entropy)

    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=1e-3), forward=loss_of)
    for step in range(1600):
        loop.step(loop.forward(batch_of(int(step >= 800))))
    return {"loss": measured(loss_of, batch_of(1, 4096))}


@healthy
def scheduled_weights(arm: Arm, source: Source) -> Metrics:
    """A VAE-like loss whose second term is switched on at step 500 and grows a hundredfold."""
    encoder, decoder = mlp(16, 48, 8), mlp(4, 48, 16)
    model = nn.ModuleList([encoder, decoder])
    mixing = source.normal(4, 16)

    def batch_of(weight: float, rows: int = 32) -> tuple[Tensor, Tensor, float]:
        return source.normal(rows, 4) @ mixing + 0.1 * source.normal(rows, 16), source.normal(rows, 4), weight

    def loss_of(batch: tuple[Tensor, Tensor, float]) -> Tensor:
        x, noise, weight = batch
        mean, log_variance = encoder(x).chunk(2, dim=1)
        rebuilt = decoder(mean + noise * torch.exp(log_variance / 2))
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
        loss: Tensor = F.mse_loss(rebuilt, x) + weight * divergence
        return loss

    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=2e-3), forward=loss_of)
    for step in range(1500):
        weight = 0.0 if step < 500 else 1.0 if step >= 1000 else 0.01
        loop.step(loop.forward(batch_of(weight)))
    return {"loss": measured(loss_of, batch_of(1.0, 4096))}


@healthy
def warm_restarts(arm: Arm, source: Source) -> Metrics:
    """SGD with momentum under a cosine schedule that starts anew every 400 steps."""
    teacher, model = mlp(12, 32, 4), mlp(12, 96, 4)
    batch_of = partial(taught, teacher, source, 12)

    loss_of = loss_with(model, F.cross_entropy)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=400)
    loop = arm.take(model, optimizer, schedule, forward=loss_of)
    for _ in range(2000):
        loop.step(loop.forward(batch_of(32)))
    return {"loss": measured(loss_of, batch_of(4096))}


@healthy
def head_swap(arm: Arm, source: Source) -> Metrics:
    """Fine-tuning: after 800 steps the head is replaced by a fresh one for other classes, in the same run."""
    teacher = mlp(12, 32, 10)
    trunk, head = mlp(12, 64, 32), nn.Linear(32, 10)
    model = nn.Sequential(trunk, nn.ReLU(), head)
    order = torch.arange(10)

    def batch_of(rows: int, shift: int) -> Pair:
        x, y = taught(teacher, source, 12, rows)
        return x, order.roll(shift)[y]

    loss_of = loss_with(model, F.cross_entropy)

    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=2e-3), forward=loss_of)
    for step in range(1600):
        if step == 800:
            with torch.no_grad():
                fresh = nn.Linear(32, 10)
                head.weight.copy_(3 * fresh.weight)
                head.bias.copy_(fresh.bias)
        loop.step(loop.forward(batch_of(32, 0 if step < 800 else 3)))
    return {"loss": measured(loss_of, batch_of(4096, 3))}


@healthy
def resumed_at_a_higher_rate(arm: Arm, source: Source) -> Metrics:
    """After 700 steps with a small rate the run goes on with one 20 times as high."""
    grammar = Grammar(source, 0, 32)
    model = NextToken(32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loop = arm.take(model, optimizer, forward=model)
    for step in range(1500):
        if step == 700:
            optimizer.param_groups[0]["lr"] = 6e-3
        loop.step(loop.forward(grammar.texts(source, 8, 16)))
    return {"loss": measured(model, grammar.texts(source, 256, 16))}


@healthy
def longer_texts(arm: Arm, source: Source) -> Metrics:
    """A recurrent model with a summed loss whose texts grow from 8 to 48 tokens in three phases."""
    grammar = Grammar(source, 0, 16)
    model = nn.ModuleList([nn.Embedding(16, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 16)])

    def loss_of(tokens: Tensor) -> Tensor:
        states, _ = model[1](model[0](tokens[:, :-1]))
        return F.cross_entropy(model[2](states).flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum") / len(tokens)

    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=3e-3), forward=loss_of)
    for step in range(600):
        loop.step(loop.forward(grammar.texts(source, 4, (8, 20, 48)[step // 200])))
    return {"loss a token": measured(loss_of, grammar.texts(source, 128, 48)) / 47}
