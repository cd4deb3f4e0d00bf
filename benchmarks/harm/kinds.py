"""Healthy trainings whose losses or gradients look odd by their nature."""

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
def gaussian_likelihood(arm: Arm, source: Source) -> Metrics:
    """Mean and variance of noisy data: a loss that goes below 0, with sharp gradients where it is sure."""
    model = mlp(4, 64, 64, 2)
    directions = source.normal(2, 4)

    def batch_of(rows: int) -> Pair:
        x = source.normal(rows, 4)
        spread = 0.01 + 0.2 * torch.sigmoid(3 * x @ directions[1])
        return x, torch.sin(x @ directions[0]) + spread * source.normal(rows)

    def loss_of(batch: Pair) -> Tensor:
        mean, log_variance = model(batch[0]).unbind(1)
        return F.gaussian_nll_loss(mean, batch[1], log_variance.exp(), eps=1e-6)

    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=2e-3), forward=loss_of)
    for _ in range(2500):
        loop.step(loop.forward(batch_of(32)))
    return {"loss": measured(loss_of, batch_of(8192))}


@healthy
def summed_loss(arm: Arm, source: Source) -> Metrics:
    """A loss that is summed over rows of very different number."""
    model = mlp(8, 64, 1)
    direction = source.normal(8)

    def batch_of(rows: int) -> Pair:
        x = source.normal(rows, 8)
        return x, torch.tanh(x @ direction)[:, None]

    loss_of = loss_with(model, F.mse_loss, reduction="sum")

    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=1e-3), forward=loss_of)
    for _ in range(1500):
        loop.step(loop.forward(batch_of(1 + int(63 * float(source.uniform(1))))))
    return {"loss": measured(loss_of, batch_of(4096)) / 4096}


@healthy
def few_rows(arm: Arm, source: Source) -> Metrics:
    """Overfitting to 32 rows until the loss is next to nothing."""
    model = mlp(16, 128, 5)
    x, y = source.normal(32, 16), source.integers(5, 32)

    def loss_of(places: Tensor) -> Tensor:
        return F.cross_entropy(model(x[places]), y[places])

    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=2e-3), forward=loss_of)
    for _ in range(1200):
        loop.step(loop.forward(source.integers(32, 8)))
    return {"loss": measured(loss_of, torch.arange(32))}


@healthy
def large_gradients(arm: Arm, source: Source) -> Metrics:
    """Linear regression by SGD to targets of scale 10: large gradients, rightly."""
    model = nn.Linear(8, 1)
    x = source.normal(256, 8)
    y = 10 * x @ source.normal(8, 1) + 30
    loss_of = loss_with(model, F.mse_loss)

    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=0.05), forward=loss_of)
    for _ in range(200):
        loop.step(loop.forward((x, y)))
    return {"loss": measured(loss_of, (x, y))}


@healthy
def contrastive(arm: Arm, source: Source) -> Metrics:
    """Two encoders that learn to find each other's pairs, with a temperature that is learned."""
    left, right = mlp(12, 64, 16), mlp(10, 64, 16)
    temperature = nn.Parameter(torch.tensor(2.0))
    model = nn.ModuleList([left, right, nn.ParameterList([temperature])])
    views = source.normal(6, 12), source.normal(6, 10)

    def batch_of(rows: int) -> Pair:
        hidden = source.normal(rows, 6)
        return hidden @ views[0], hidden @ views[1] + 0.3 * source.normal(rows, 10)

    def loss_of(batch: Pair) -> Tensor:
        one, other = F.normalize(left(batch[0]), dim=1), F.normalize(right(batch[1]), dim=1)
        logits = one @ other.T * temperature.exp().clamp(max=100)
        aim = torch.arange(len(one))
        return (F.cross_entropy(logits, aim) + F.cross_entropy(logits.T, aim)) / 2

    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=2e-3), forward=loss_of)
    for _ in range(1200):
        loop.step(loop.forward(batch_of(32)))
    return {"loss": sum(measured(loss_of, batch_of(32)) for _ in range(64)) / 64}


@healthy
def diffusion(arm: Arm, source: Source) -> Metrics:
    """Denoising of points; each batch has one noise level, and its loss a weight that spans three decades."""
    model = mlp(3, 96, 96, 2, activation=nn.SiLU)

    def batch_of(rows: int, level: float | None = None) -> tuple[Tensor, Tensor, float]:
        angle = 6.283 * source.uniform(rows)
        points = torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * source.normal(rows, 2)
        sigma = float(torch.exp(source.normal(1) * 1.2 - 1.0)) if level is None else level
        return points, source.normal(rows, 2), sigma

    def loss_of(batch: tuple[Tensor, Tensor, float]) -> Tensor:
        points, noise, sigma = batch
        noisy = points + sigma * noise
        scaled = torch.cat([noisy / (sigma**2 + 0.5) ** 0.5, torch.full((len(points), 1), sigma).log() / 4], dim=1)
        return (1 + 0.25 / sigma**2) * F.mse_loss(model(scaled), points)

    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=1e-3), forward=loss_of)
    for _ in range(2500):
        loop.step(loop.forward(batch_of(64)))
    return {f"noise {level}": measured(loss_of, batch_of(8192, level)) for level in (0.03, 0.3, 3.0)}


@healthy
def label_noise(arm: Arm, source: Source) -> Metrics:
    """A classifier with 40 % wrong labels, all of a batch wrong in one of 50."""
    teacher, model = mlp(10, 32, 5), mlp(10, 64, 5)

    def batch_of(rows: int, share: float) -> Pair:
        x, y = taught(teacher, source, 10, rows, sharpness=4)
        return x, torch.where(source.uniform(rows) < share, source.integers(5, rows), y)

    loss_of = loss_with(model, F.cross_entropy)

    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), forward=loss_of)
    for _ in range(1500):
        loop.step(loop.forward(batch_of(32, 1.0 if source.chance(0.02) else 0.4)))
    return {"loss": measured(loss_of, batch_of(8192, 0.0))}


@healthy
def tiny_batches(arm: Arm, source: Source) -> Metrics:
    """One row a batch."""
    teacher, model = mlp(10, 32, 4), mlp(10, 64, 4)
    batch_of = partial(taught, teacher, source, 10)
    loss_of = loss_with(model, F.cross_entropy)

    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=0.02), forward=loss_of)
    for _ in range(3000):
        loop.step(loop.forward(batch_of(1)))
    return {"loss": measured(loss_of, batch_of(4096))}


@healthy
def mixture_of_experts(arm: Arm, source: Source) -> Metrics:
    """Eight experts of which each row uses one, with a term that balances them; one expert is needed rarely."""
    router, experts = nn.Linear(10, 8), nn.ModuleList([mlp(10, 32, 1) for _ in range(8)])
    model = nn.ModuleList([router, experts])
    maps, centres = source.normal(8, 10), 3 * source.normal(8, 10)
    shares = torch.tensor([1.0] * 7 + [0.05])

    def batch_of(rows: int, only: int | None = None) -> Pair:
        kind = source.draw(shares, rows) if only is None else torch.full((rows,), only)
        x = source.normal(rows, 10)
        return x + centres[kind], (torch.sin(x * maps[kind]).sum(1) + kind)[:, None]

    def loss_of(batch: Pair) -> Tensor:
        x, y = batch
        gates = torch.softmax(router(x), dim=1)
        weight, chosen = gates.max(dim=1)
        outputs = torch.stack([expert(x) for expert in experts], dim=1)[torch.arange(len(x)), chosen]
        used = F.one_hot(chosen, 8).float().mean(0)
        return F.mse_loss(weight[:, None] * outputs, y) + 0.01 * 8 * (used * gates.mean(0)).sum()

    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=2e-3), forward=loss_of)
    for _ in range(1500):
        loop.step(loop.forward(batch_of(32)))
    return {"loss": measured(loss_of, batch_of(8192)), "rare rows": measured(loss_of, batch_of(2048, 7))}


@healthy
def accumulation(arm: Arm, source: Source) -> Metrics:
    """A step of four small batches, of which one in 200 is of a rare kind."""
    common, rare = Grammar(source, 0, 20), Grammar(source, 20, 20)
    model = NextToken(40)
    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=3e-3), max_norm=1.0, forward=model)
    for _ in range(1200):
        for _ in range(4):
            kind = rare if source.chance(0.005) else common
            loop.backward(loop.forward(kind.texts(source, 4, 12)) / 4)
        loop.step()
    return {
        "loss": measured(model, common.texts(source, 256, 16)),
        "rare text": measured(model, rare.texts(source, 256, 16)),
    }


@healthy
def small_batch_norm(arm: Arm, source: Source) -> Metrics:
    """BatchNorm over four rows."""
    teacher = mlp(10, 32, 4)
    first, second = ((nn.Linear(width, 64), nn.BatchNorm1d(64), nn.ReLU()) for width in (10, 64))
    model = nn.Sequential(*first, *second, nn.Linear(64, 4))
    batch_of = partial(taught, teacher, source, 10)
    loss_of = loss_with(model, F.cross_entropy)

    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=1e-3), forward=loss_of)
    for _ in range(2000):
        loop.step(loop.forward(batch_of(4)))
    model.eval()
    return {"loss": measured(loss_of, batch_of(4096))}


@healthy
def heavy_tails(arm: Arm, source: Source) -> Metrics:
    """Regression to targets with Student noise of 1.5 degrees of freedom, under a Huber loss, by SGD."""
    model = mlp(8, 64, 1)
    direction = source.normal(8)

    def batch_of(rows: int) -> tuple[Tensor, Tensor, Tensor]:
        x = source.normal(rows, 8)
        clean = torch.tanh(x @ direction)[:, None]
        chi = source.normal(rows, 3).square().sum(1, keepdim=True) / 2
        return x, clean + 0.3 * source.normal(rows, 1) / (chi / 1.5).sqrt().clamp(min=1e-3), clean

    loss_of = loss_with(model, F.huber_loss, delta=5.0)

    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), forward=loss_of)
    for _ in range(2000):
        loop.step(loop.forward(batch_of(16)))
    x, _, clean = batch_of(4096)
    return {"error": measured(loss_with(model, F.mse_loss), (x, clean))}
