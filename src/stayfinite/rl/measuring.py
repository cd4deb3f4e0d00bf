"""Signals of post-training from what the loss function computes anyway: ``guard.step(loss, signals=...)``.

Everything stays on the device, without a sync. Masked values are ignored, including NaN in the padding.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from stayfinite.errors import UsageError

__all__ = ["preference_signals", "signals", "value_signals"]

FARTHEST = 20.0
"""Differences of log-probabilities are clamped here, so an exploding ratio is large but finite."""

GRAM = 4
"""Tokens per n-gram when searching answers for repetition."""

REPEATED = 0.5
"""Share of repeated n-grams at which an answer counts as repetitive."""


@torch.no_grad()
def signals(
    logprobs: Tensor,
    old_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    advantages: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    entropy: Tensor | None = None,
    rewards: Tensor | Mapping[str, Tensor] | None = None,
    group_size: int | None = None,
    clip: float | tuple[float, float] = 0.2,
    sampler_logprobs: Tensor | None = None,
    tokens: Tensor | None = None,
    cut_off: Tensor | None = None,
    limit: int | None = None,
) -> dict[str, Tensor]:
    """Signals of one batch of answers, each a scalar on the device; those without an input are omitted.

    Examples:
        >>> logprobs = torch.tensor([[-1.0, -2.0], [-1.5, -0.5]])
        >>> found = rl.signals(logprobs, old_logprobs=logprobs, advantages=torch.tensor([1.0, -1.0]))
        >>> guard.step(compute_loss(model, batch), signals=found)
        >>> sorted(guard.decisions[-1].signals.named)
        ['advantage_mean', 'advantage_std', 'clipped', 'entropy', 'ratio_max', 'ratio_mean']

    Arguments:
        logprobs: of the answers' tokens under the trained weights, ``[answers, tokens]``.
        old_logprobs: under the sampling weights; gives ``ratio_mean``, ``ratio_max`` and ``clipped``.
        ref_logprobs: under the reference model; gives ``kl``, which is never negative (exp(d) - d - 1).
        advantages: one per answer or per token.
        mask: true for tokens that count: the answer, without prompt and padding. All by default.
        entropy: of the distribution at each token; by default estimated from the log-probabilities of the tokens.
        rewards: one per answer, or several by name; ``reward`` is then their sum.
        group_size: answers per prompt, adjacent; gives ``equal_groups``.
        clip: clipping range of the ratio around 1, or below and above.
        sampler_logprobs: of the same tokens, as returned by the sampler; gives ``mismatch``, relative to
            ``old_logprobs`` if given, so the policy's own updates do not count.
        tokens: ids of the answers; gives ``repeats``.
        cut_off: true for each answer that was truncated at the limit.
        limit: most tokens of an answer, if ``cut_off`` is unknown: an answer this long counts as truncated.

    Raises:
        UsageError: shapes do not fit together.
    """
    _check(logprobs, (old_logprobs, ref_logprobs, mask, sampler_logprobs, tokens))
    counts = torch.ones_like(logprobs, dtype=torch.bool) if mask is None else mask.bool()
    found: dict[str, Tensor] = {}
    if ref_logprobs is not None:
        apart = _apart(ref_logprobs, logprobs, counts)
        found["kl"] = _mean(apart.exp() - apart - 1, counts)
    found["entropy"] = _mean(-logprobs if entropy is None else entropy, counts)
    if old_logprobs is not None:
        ratio = _apart(logprobs, old_logprobs, counts).exp()
        found["ratio_mean"] = _mean(ratio, counts)
        found["ratio_max"] = torch.where(counts, ratio, 0).max()
        below, above = clip if isinstance(clip, tuple) else (clip, clip)
        low, high = ratio < 1 - below, ratio > 1 + above
        if advantages is not None:
            # A ratio is clipped only if the advantage would push it further away.
            each = advantages if advantages.dim() > 1 else advantages[:, None]
            low, high = low & (each < 0), high & (each > 0)
        found["clipped"] = _mean((low | high).float(), counts)
    if advantages is not None:
        where = counts if advantages.dim() > 1 else torch.ones_like(advantages, dtype=torch.bool)
        found["advantage_mean"] = _mean(advantages, where)
        found["advantage_std"] = _variance(advantages, where).sqrt()
    scores = advantages if advantages is not None and advantages.dim() == 1 else None
    if rewards is not None:
        parts = {} if isinstance(rewards, Tensor) else {name: part.float() for name, part in rewards.items()}
        # A reward function without an opinion on an answer returns NaN.
        scores = rewards if isinstance(rewards, Tensor) else torch.stack([*parts.values()]).nansum(0)
        found["reward"] = scores.float().mean()
        found |= {f"reward/{name}": part.nanmean() for name, part in parts.items()}
    if group_size is not None and scores is not None:
        groups = scores.reshape(-1, group_size)
        found["equal_groups"] = (groups == groups[:, :1]).all(1).float().mean()
    if mask is not None:
        lengths = counts.sum(1)
        found["length"] = lengths.float().mean()
        if cut_off is None and limit is not None:
            cut_off = lengths >= limit
    if cut_off is not None:
        found["cut_off"] = cut_off.float().mean()
    if tokens is not None:
        found["repeats"] = _repeats(tokens, counts)
    if sampler_logprobs is not None:
        apart = _apart(logprobs if old_logprobs is None else old_logprobs, sampler_logprobs, counts).abs()
        found["mismatch"] = _mean(apart, counts)
        found["mismatch_max"] = torch.where(counts, apart, 0).max()
    return found


@torch.no_grad()
def preference_signals(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor | None = None,
    ref_rejected: Tensor | None = None,
    *,
    beta: float = 1.0,
) -> dict[str, Tensor]:
    """Signals of a batch of preferred and rejected answers (DPO and similar).

    Examples:
        >>> found = rl.preference_signals(chosen=torch.tensor([-12.0]), rejected=torch.tensor([-15.0]))
        >>> found["margin"]
        tensor(3.)

    Arguments:
        chosen: log-probability of each preferred answer as a whole.
        rejected: of each rejected one.
        ref_chosen: under the reference model; ``margin`` is then that of the implicit rewards.
        ref_rejected: under the reference model.
        beta: factor of the margin.
    """
    margin = chosen.float().mean() - rejected.float().mean()
    if ref_chosen is not None and ref_rejected is not None:
        margin = margin - ref_chosen.float().mean() + ref_rejected.float().mean()
    return {
        "chosen_logp": chosen.float().mean(),
        "rejected_logp": rejected.float().mean(),
        "margin": beta * margin,
    }


@torch.no_grad()
def value_signals(values: Tensor, returns: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
    """Signals of a value head: its mean squared error, and its explained share of the returns' variance.

    Examples:
        >>> rl.value_signals(values=torch.tensor([0.0, 1.0, 3.0]), returns=torch.tensor([0.0, 2.0, 4.0]))
        {'value_loss': tensor(0.6667), 'explained_variance': tensor(0.9167)}
    """
    _check(values, (returns, mask))
    counts = torch.ones_like(values, dtype=torch.bool) if mask is None else mask.bool()
    error = torch.where(counts, returns - values, 0).float()
    variance = _variance(returns, counts)
    # Constant returns leave nothing to explain.
    explained = torch.where(variance > 0, 1 - _variance(error, counts) / variance.clamp_min(1e-12), 0)
    return {"value_loss": _mean(error.square(), counts), "explained_variance": explained}


def _repeats(tokens: Tensor, counts: Tensor) -> Tensor:
    """Share of answers that mostly repeat earlier n-grams."""
    if tokens.shape[1] < 2 * GRAM:
        return torch.zeros((), device=tokens.device)
    # Hash each n-gram to a number; sorting brings equal ones together without a table of pairs.
    ids = tokens.long()
    width = tokens.shape[1] - GRAM + 1
    pieces = torch.zeros_like(ids[:, :width])
    whole = torch.ones_like(counts[:, :width])
    for place in range(GRAM):
        pieces = pieces * 1_000_003 + ids[:, place : place + width] + 1
        whole = whole & counts[:, place : place + width]
    # Masked n-grams get unique numbers, so they match nothing.
    pieces = torch.where(whole, pieces & (2**62 - 1), -1 - torch.arange(width, device=tokens.device))
    order = pieces.sort(1).values
    again = ((order[:, 1:] == order[:, :-1]) & (order[:, 1:] >= 0)).sum(1)
    many = whole.sum(1)
    return ((again > REPEATED * many) & (many >= GRAM)).float().mean()


def _apart(one: Tensor, other: Tensor, counts: Tensor) -> Tensor:
    return torch.where(counts, one.float() - other.float(), 0).clamp(-FARTHEST, FARTHEST)


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    return torch.where(counts, values.float(), 0).sum() / counts.sum().clamp_min(1)


def _variance(values: Tensor, counts: Tensor) -> Tensor:
    return _mean((values.float() - _mean(values, counts)).square(), counts)


def _check(first: Tensor, others: tuple[Tensor | None, ...]) -> None:
    for other in others:
        if other is not None and other.shape != first.shape:
            raise UsageError(
                f"expected tensors of one shape, not {list(first.shape)} and {list(other.shape)}",
                fix="give one number per token of each answer; remove prompts from all of them",
            )
