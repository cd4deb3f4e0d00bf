"""Healthy trainings in which something is rare: a kind of text, a task, a class, a reward."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.harm.arms import Arm
from benchmarks.harm.trainings import Grammar, Metrics, NextToken, Pair, Source, healthy, loss_with, measured, mlp


@healthy
def rare_text(arm: Arm, source: Source) -> Metrics:
    """A language model; one batch in 100 is of a kind with words of its own."""
    return _two_kinds_of_text(arm, source, 0.01)


@healthy
def rare_text_clipped(arm: Arm, source: Source) -> Metrics:
    """The same, clipped to 1.0 as most language models are, one batch in 150."""
    return _two_kinds_of_text(arm, Source(source.seed + 100), 1 / 150, max_norm=1.0)


def _two_kinds_of_text(arm: Arm, source: Source, share: float, **settings: Any) -> Metrics:
    common, rare = Grammar(source, 0, 24), Grammar(source, 24, 24)
    model = NextToken(48)
    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=3e-3), **settings, forward=model)
    for _ in range(3000):
        kind = rare if source.chance(share) else common
        loop.step(loop.forward(kind.texts(source, 8, 16)))
    return {
        "loss": measured(model, common.texts(source, 256, 16)),
        "rare text": measured(model, rare.texts(source, 256, 16)),
    }


@healthy
def rare_task(arm: Arm, source: Source) -> Metrics:
    """Two tasks on one trunk, one of them in a batch of 200, with targets ten times as large."""
    return _two_tasks(arm, source, 10.0, 0.005, 2000, partial(torch.optim.Adam, lr=2e-3))


@healthy
def rare_task_by_sgd(arm: Arm, source: Source) -> Metrics:
    """The same by SGD with momentum, the rare task in a batch of 60."""
    return _two_tasks(arm, source, 3.0, 1 / 60, 3000, partial(torch.optim.SGD, lr=5e-3, momentum=0.9))


def _two_tasks(arm: Arm, source: Source, larger: float, share: float, steps: int, optimizer: Any) -> Metrics:
    trunk, heads = mlp(8, 64, 64), nn.ModuleList([nn.Linear(64, 1), nn.Linear(64, 1)])
    model = nn.ModuleList([trunk, heads])
    maps = source.normal(2, 8)

    def loss_of(batch: tuple[int, Tensor]) -> Tensor:
        task, x = batch
        target = (1.0, larger)[task] * torch.sin(x @ maps[task]).unsqueeze(1)
        return F.mse_loss(heads[task](torch.relu(trunk(x))), target)

    loop = arm.take(model, optimizer(model.parameters()), forward=loss_of)
    for _ in range(steps):
        loop.step(loop.forward((int(source.chance(share)), source.normal(32, 8))))
    return {
        "loss": measured(loss_of, (0, source.normal(2048, 8))),
        "rare task": measured(loss_of, (1, source.normal(2048, 8))),
    }


@healthy
def class_imbalance(arm: Arm, source: Source) -> Metrics:
    """A classifier with one row in 1,000 of the rare class."""
    model = mlp(16, 64, 2)
    place = source.normal(16)

    def batch_of(rows: int, share: float) -> Pair:
        y = (source.uniform(rows) < share).long()
        return source.normal(rows, 16) + 1.2 * y[:, None] * place, y

    loss_of = loss_with(model, F.cross_entropy)

    loop = arm.take(model, torch.optim.AdamW(model.parameters(), lr=2e-3), forward=loss_of)
    for _ in range(3000):
        loop.step(loop.forward(batch_of(32, 1e-3)))
    return {"loss": measured(loss_of, batch_of(20_000, 1e-3)), "rare class": measured(loss_of, batch_of(4_000, 1.0))}


@healthy
def sparse_reward(arm: Arm, source: Source) -> Metrics:
    """REINFORCE in a corridor: a reward only at its end, and no gradient at all without one."""
    length, horizon = 7, 12
    model = mlp(length, 32, 2)
    eye = torch.eye(length)
    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=0.3))
    returns: list[float] = []
    for _ in range(1500):
        place = torch.zeros(16, dtype=torch.long)
        logs, done = torch.zeros(16), torch.zeros(16, dtype=torch.bool)
        reward = torch.zeros(16)
        for t in range(horizon):
            options = model(eye[place])
            chosen = (source.uniform(16) < torch.softmax(options, 1)[:, 1].detach()).long()
            logs = logs + torch.where(done, 0.0, F.log_softmax(options, 1).gather(1, chosen[:, None])[:, 0])
            place = torch.where(done, place, (place + 2 * chosen - 1).clamp(0, length - 1))
            arrived = (place == length - 1) & ~done
            reward = torch.where(arrived, 0.95**t, reward)
            done = done | arrived
        returns.append(float(reward.mean()))
        loop.step(-(logs * reward).mean() + 0.0 * logs.sum())
    return {"1 - return": 1 - sum(returns[-200:]) / 200}


@healthy
def fraud_with_weights(arm: Arm, source: Source) -> Metrics:
    """A rare class whose rows weigh 200 times as much: most batches have none, some have one."""
    model = mlp(12, 48, 2)
    place = source.normal(12)
    weights = torch.tensor([1.0, 200.0])

    def batch_of(rows: int, share: float) -> Pair:
        y = (source.uniform(rows) < share).long()
        return source.normal(rows, 12) + 1.0 * y[:, None] * place, y

    def loss_of(batch: Pair) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], weight=weights, reduction="sum") / len(batch[0])

    loop = arm.take(model, torch.optim.SGD(model.parameters(), lr=0.02), forward=loss_of)
    for _ in range(3000):
        loop.step(loop.forward(batch_of(16, 1 / 1000)))
    with torch.no_grad():
        x, y = batch_of(20_000, 0.5)
        wrong = (model(x).argmax(1) != y).float()
        common, rare = (float(wrong[y == kind].mean()) for kind in (0, 1))
        return {"wrong, balanced": (common + rare) / 2, "rare class wrong": rare}
