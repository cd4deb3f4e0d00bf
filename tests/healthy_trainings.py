"""Trainings that look alarming and are healthy, simulated: pairs of loss and gradient norm, one a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

Sample = tuple[float, float]


def _noise(random: Random, sigma: float) -> float:
    return math.exp(random.gauss(0, sigma))


def noisy_decay(random: Random, steps: int) -> Iterator[Sample]:
    for i in range(steps):
        yield (1 + 5 * math.exp(-i / 400)) * _noise(random, 0.3), _noise(random, 0.3)


def nearly_solved(random: Random, steps: int) -> Iterator[Sample]:
    """A loss near zero, and now and then a batch with 0.2."""
    for _ in range(steps):
        loss = 0.2 * _noise(random, 0.2) if random.random() < 0.02 else abs(random.gauss(0.003, 0.002))
        yield loss, 0.1 * _noise(random, 0.5)


def heavy_tailed_norms(random: Random, steps: int) -> Iterator[Sample]:
    for _ in range(steps):
        yield random.gauss(2, 0.1), _noise(random, 0.6)


def negative_losses(random: Random, steps: int) -> Iterator[Sample]:
    """A log-likelihood or a reward: from above zero to below it."""
    for i in range(steps):
        yield random.gauss(3 * math.exp(-i / 500) - 2, 0.5), _noise(random, 0.4)


def two_kinds_of_batches(random: Random, steps: int) -> Iterator[Sample]:
    """Every tenth batch, by chance, has ten times the gradient norm."""
    for _ in range(steps):
        yield random.gauss(2, 0.1), (10 if random.random() < 0.1 else 1) * _noise(random, 0.2)


def constant_loss(random: Random, steps: int) -> Iterator[Sample]:
    for _ in range(steps):
        yield 2.0, 1.0


def rising_norm_in_warmup(random: Random, steps: int) -> Iterator[Sample]:
    """The gradient norm grows a hundredfold over the first 100 steps, then stays."""
    for i in range(steps):
        yield random.gauss(5 - min(i, 1000) / 500, 0.1), 0.1 * 100 ** min(i / 100, 1) * _noise(random, 0.3)


TRAININGS: tuple[Callable[[Random, int], Iterator[Sample]], ...] = (
    noisy_decay,
    nearly_solved,
    heavy_tailed_norms,
    negative_losses,
    two_kinds_of_batches,
    constant_loss,
    rising_norm_in_warmup,
)
