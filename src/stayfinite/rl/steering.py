"""Act on post-training failures with finite losses, one rung at a time, each with time to work.

Drop harmful groups (``sound_groups``, in every step), raise the KL coefficient, cut the learning rate, roll back to
known-good weights. Causes that none of these fix (a differing sampler, a constant reward) are reported and left to the
user.
"""

from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Any, Protocol

import torch
from torch import Tensor

from stayfinite.core.post_training.signs import ENTROPY_COLLAPSE, KL_RUNAWAY, RATIO_EXPLOSION, REWARD_FALLS
from stayfinite.errors import UsageError

__all__ = ["Rung", "Steering", "sound_groups"]

CURABLE = (KL_RUNAWAY, RATIO_EXPLOSION, REWARD_FALLS, ENTROPY_COLLAPSE)
"""Causes that a smaller step, a stronger KL term, or older weights can fix."""

WIDEST = 100.0
"""Importance ratio of one token, or its inverse, that would dominate a batch."""


class Rung(IntEnum):
    """Actions, in the order they are tried."""

    NOTHING = 0
    KL = 1
    RATE = 2
    ROLL_BACK = 3


class Guarded(Protocol):
    """The part of a guard that steering needs."""

    @property
    def standing_signs(self) -> AbstractSet[str]:
        """Causes shown by the signals of the last steps."""

    @property
    def steered(self) -> dict[str, Any]:
        """Plain data saved and resumed with the guard."""

    def raised_kl(self, kl: float, why: str) -> None:
        """Record the new KL coefficient."""

    def agree(self, number: int) -> int:
        """Maximum over all ranks."""

    def cut_rate(self, why: str) -> None:
        """Cut the learning rate for a while."""

    def roll_back(self, why: str) -> bool:
        """Return to the last known-good state; whether there was one."""


class Steering:
    """Takes the rungs; call :meth:`follow` after every step, on all ranks.

    Examples:
        >>> steering = rl.Steering(guard, kl=0.02)
        >>> loss = compute_loss(model, batch) + steering.kl * torch.tensor(0.3)
        >>> guard.step(loss, signals={"kl": 0.3})
        >>> steering.follow()
        <Rung.NOTHING: 0>

    Arguments:
        guard: the training's guard.
        kl: initial coefficient of the KL term; 0 for a loss without one, which starts with the rate.
        most: highest multiple of ``kl``.
        patience: steps between two rungs.
    """

    def __init__(self, guard: Guarded, *, kl: float = 0.0, most: float = 8.0, patience: int = 20) -> None:
        if not (kl >= 0 and most >= 1 and patience >= 1):
            raise UsageError(
                f"kl={kl:g}, most={most:g}, patience={patience}: out of range",
                fix="kl 0 or more, most and patience 1 or more",
            )
        self._guard, self._patience = guard, patience
        self._first, self._highest = kl, kl * most

    @property
    def kl(self) -> float:
        """Current coefficient of the KL term."""
        return float(self._state["kl"])

    @property
    def done(self) -> list[Rung]:
        """Rungs taken, including those before a resume."""
        return [Rung(each) for each in self._state["done"]]

    @property
    def _state(self) -> dict[str, Any]:
        """State kept by the guard, so it survives a kill: coefficient, rungs, and steps since the last."""
        state = self._guard.steered
        if not state:
            state.update(kl=self._first, done=[], taken=int(Rung.NOTHING), waited=self._patience, calm=0)
        return state

    def follow(self) -> Rung:
        """Check the signs of the last steps and act if due; return the action."""
        state = self._state
        state["waited"] += 1
        wanted = next((cause for cause in CURABLE if cause in self._guard.standing_signs), "")
        # The rank that judges the signals decides for all.
        place = self._guard.agree(CURABLE.index(wanted) + 1 if wanted else 0)
        if not place:
            state["calm"] += 1
            if state["calm"] > 2 * self._patience:
                state["taken"] = int(Rung.NOTHING)  # later trouble starts at the first rung again
            return Rung.NOTHING
        state["calm"] = 0
        if state["waited"] <= self._patience:
            return Rung.NOTHING
        state["waited"] = 0
        rung = self._take(CURABLE[place - 1], state)
        if rung:
            state["taken"] = int(rung)
            state["done"].append(int(rung))
        return rung

    def _take(self, cause: str, state: dict[str, Any]) -> Rung:
        taken, kl = state["taken"], self.kl
        if taken <= Rung.KL and 0 < kl < self._highest:
            state["kl"] = min(2 * kl, self._highest)
            self._guard.raised_kl(state["kl"], cause)
            return Rung.KL
        if taken < Rung.RATE:
            self._guard.cut_rate(cause)
            return Rung.RATE
        if taken < Rung.ROLL_BACK and self._guard.roll_back(cause):
            return Rung.ROLL_BACK
        return Rung.NOTHING


@torch.no_grad()
def sound_groups(
    rewards: Tensor,
    group_size: int,
    *,
    ratio: Tensor | None = None,
    mask: Tensor | None = None,
    widest: float = WIDEST,
) -> Tensor:
    """True for each answer of a group that can be learned from; on the device, without a sync.

    Groups are dropped as a whole, so the advantages of other answers stay comparable: if a reward is not finite,
    if all its rewards are equal, or if one token's importance ratio is beyond ``widest`` or not finite.

    Examples:
        >>> rl.sound_groups(torch.tensor([1.0, 0.0, 1.0, 1.0]), group_size=2)
        tensor([ True,  True, False, False])

    Arguments:
        rewards: one per answer.
        group_size: answers per prompt, adjacent.
        ratio: importance ratio of each token, ``[answers, tokens]``.
        mask: true for tokens that count.
        widest: largest ratio, and the inverse of the smallest.
    """
    if rewards.dim() != 1 or group_size < 1 or len(rewards) % group_size:
        raise UsageError(
            f"{list(rewards.shape)} rewards do not make groups of {group_size}",
            fix="give one reward per answer, answers to one prompt next to each other",
        )
    groups = rewards.float().reshape(-1, group_size)
    good = groups.isfinite().all(1) & (groups != groups[:, :1]).any(1)
    kept = good.repeat_interleave(group_size)
    return kept if ratio is None else kept & tame_groups(ratio, group_size, mask=mask, widest=widest)


@torch.no_grad()
def tame_groups(ratio: Tensor, group_size: int, *, mask: Tensor | None = None, widest: float = WIDEST) -> Tensor:
    """True for each answer of a group in which no token's importance ratio would dominate the batch."""
    tame = ratio.isfinite() & (ratio <= widest) & (ratio >= 1 / widest)
    if mask is not None:
        tame = tame | ~mask.bool()
    return tame.reshape(len(ratio) // group_size, -1).all(1).repeat_interleave(group_size)
