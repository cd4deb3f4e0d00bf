"""How much of a sample is left at time t, from 0 (all of it) to 1 (nearly nothing): linear, cosine, sigmoid."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Schedule = Literal["linear", "cosine", "sigmoid"]
LEAST, MOST = 1e-4, 1.0 - 1e-4
"""Bounds of what is left: at the ends the sample, or the noise, could not be computed from the other."""


def kept(schedule: Schedule, time: Tensor) -> Tensor:
    """The share of the variance that is still the sample's at these times, in float32: from 1 down to almost 0."""
    t = time.float().clamp(0.0, 1.0)
    if schedule == "linear":  # noise is added at a rate that rises in a straight line
        left = torch.exp(-(0.1 * t + 0.5 * 19.9 * t.square()))
    elif schedule == "cosine":
        left = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square() / math.cos(0.008 / 1.008 * math.pi / 2) ** 2
    else:
        ends = torch.sigmoid(torch.tensor([3.0, -3.0]))
        left = (torch.sigmoid(3.0 - 6.0 * t) - ends[1].to(t.device)) / (ends[0] - ends[1]).to(t.device)
    return left.clamp(LEAST, MOST)


def amounts(schedule: Schedule, time: Tensor) -> tuple[Tensor, Tensor]:
    """Amplitudes of sample and noise at these times; their squares add up to 1."""
    left = kept(schedule, time)
    return left.sqrt(), (1.0 - left).sqrt()


def hidden(schedule: Schedule, time: Tensor) -> Tensor:
    """The share of a text's tokens that is hidden at these times."""
    return 1.0 - kept(schedule, time)
