"""What a sampled answer is worth, and how much better than its siblings it is."""

from __future__ import annotations

import torch
from torch import Tensor

from stayfinite.recipes.chat.answers import is_right, number_in, parsed

TINY = 1e-6
"""Rewards of a group that differ by less are equal."""


def reward_of(text: str, right: str, *, ended: bool, readable: float) -> float:
    """1 for a right answer, ``readable`` for one that can be read and is wrong, 0 for all else.

    An answer that was cut off at the limit gets nothing: to reward it would teach the model not to stop.
    """
    given = parsed(text, numeric=number_in(right) is not None)
    if not ended or given is None:
        return 0.0
    return 1.0 if is_right(given, right) else readable


def advantages_of(rewards: Tensor, size: int) -> Tensor:
    """Each reward less its group's mean, over its group's standard deviation; 0 throughout a group of equal rewards.

    Arguments:
        rewards: of all answers, ``size`` of a question one after the other.
    """
    groups = rewards.view(-1, size)
    spread = groups.std(dim=1, correction=0, keepdim=True)
    centered = groups - groups.mean(dim=1, keepdim=True)
    return torch.where(spread > TINY, centered / spread.clamp(min=TINY), 0.0).flatten()


def equal_share(rewards: Tensor, size: int) -> float:
    """Share of the groups whose rewards are all equal, from which nothing is learned."""
    groups = rewards.view(-1, size)
    return float((groups.std(dim=1, correction=0) <= TINY).float().mean())
