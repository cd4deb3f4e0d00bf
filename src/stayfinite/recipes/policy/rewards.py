"""Rewards of sampled answers, and their advantages within the group."""

from __future__ import annotations

import torch
from torch import Tensor

from stayfinite.recipes.chat.answers import is_right, number_in, parsed

TINY = 1e-6
"""Rewards closer than this are equal."""


def reward_of(text: str, right: str, *, ended: bool, readable: float) -> float:
    """1 if right, ``readable`` if parseable but wrong, 0 otherwise.

    A truncated answer gets 0: rewarding it would teach the model not to stop.
    """
    given = parsed(text, numeric=number_in(right) is not None)
    if not ended or given is None:
        return 0.0
    return 1.0 if is_right(given, right) else readable


def advantages_of(rewards: Tensor, size: int) -> Tensor:
    """Rewards standardized within each group; 0 if a group's rewards are equal.

    Arguments:
        rewards: ``size`` consecutive ones per question.
    """
    groups = rewards.view(-1, size)
    spread = groups.std(dim=1, correction=0, keepdim=True)
    centered = groups - groups.mean(dim=1, keepdim=True)
    return torch.where(spread > TINY, centered / spread.clamp(min=TINY), 0.0).flatten()


def equal_share(rewards: Tensor, size: int) -> float:
    """Share of groups with equal rewards."""
    groups = rewards.view(-1, size)
    return float((groups.std(dim=1, correction=0) <= TINY).float().mean())
