"""Noise schedules over time t from 0 (clean) to 1 (almost pure noise): linear, cosine, sigmoid."""

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
