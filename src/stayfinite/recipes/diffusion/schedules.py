"""Noise schedules, and what the model predicts of a noisy latent."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Schedule = Literal["linear", "cosine", "sigmoid"]
LEAST, MOST = 1e-4, 1.0 - 1e-4
"""Bounds of the kept variance: at the very ends, sample or noise could not be recovered."""


def kept(schedule: Schedule, time: Tensor) -> Tensor:
    """Share of the variance that is signal at these times, in float32: from 1 to almost 0."""
    t = time.float().clamp(0.0, 1.0)
    if schedule == "linear":  # linearly rising noise rate
        left = torch.exp(-(0.1 * t + 0.5 * 19.9 * t.square()))
    elif schedule == "cosine":
        left = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square() / math.cos(0.008 / 1.008 * math.pi / 2) ** 2
    else:
        ends = torch.sigmoid(torch.tensor([3.0, -3.0]))
        left = (torch.sigmoid(3.0 - 6.0 * t) - ends[1].to(t.device)) / (ends[0] - ends[1]).to(t.device)
    return left.clamp(LEAST, MOST)


def amounts(schedule: Schedule, time: Tensor) -> tuple[Tensor, Tensor]:
    """Amplitudes of sample and noise at these times; their squares sum to 1."""
    left = kept(schedule, time)
    return left.sqrt(), (1.0 - left).sqrt()


def hidden(schedule: Schedule, time: Tensor) -> Tensor:
    """Share of tokens hidden at these times."""
    return 1.0 - kept(schedule, time)


Prediction = Literal["epsilon", "x0", "v"]


def target(kind: Prediction, sample: Tensor, noise: Tensor, signal: Tensor, sigma: Tensor) -> Tensor:
    """The model's target; ``signal`` and ``sigma`` are the amplitudes of sample and noise."""
    if kind == "epsilon":
        return noise
    return sample if kind == "x0" else signal * noise - sigma * sample


def both(kind: Prediction, said: Tensor, noisy: Tensor, signal: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Sample and noise from the model's prediction."""
    if kind == "epsilon":
        return (noisy - sigma * said) / signal, said
    if kind == "x0":
        return said, (noisy - signal * said) / sigma
    return signal * noisy - sigma * said, sigma * noisy + signal * said
