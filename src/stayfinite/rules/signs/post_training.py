"""Signals of RL and preference training in a log, under the names of trl, verl, OpenRLHF and others."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.post_training.course import EARLY, LATE
from stayfinite.core.post_training.signs import ALL_RIGHT, CAUSES, REWARD_FALLS, Sign
from stayfinite.core.post_training.watch import PostTraining
from stayfinite.core.series import RunSeries, Track

LEAST_LINES = 4
"""Fewest lines to judge a log."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "kl": ("kl", "actor/kl_loss", "actor/reward_kl_penalty", "kl_loss", "policy/policy_kl"),
    "entropy": (
        "entropy", "policy_entropy", "actor/entropy", "actor/entropy_loss", "policy/entropy_avg",
        "policy/policy_entropy", "entropy_loss", "approx_entropy", "ppo_actor/update/entropy/avg", "ppo/policy/entropy",
    ),
    "ratio_mean": ("ratio_mean", "val/ratio"),
    "ratio_max": ("ratio_max",),
    "clipped": (
        "clipped", "clip_ratio/region_mean", "clip_ratio", "actor/pg_clipfrac", "ppo_clip_ratio",
        "policy/clipfrac_avg", "policy/ppo_clip_ratio", "pg_clipfrac", "ppo_actor/update/clip_ratio/avg",
        "ppo/policy/clipfrac",
    ),
    "advantage_std": ("advantage_std",),
    "equal_groups": ("equal_groups", "frac_reward_zero_std"),
    "reward": (
        "reward", "mean_reward", "critic/score/mean", "critic/rewards/mean", "rollout/reward_mean",
        "rollout/raw_reward", "reward/avg_raw_reward", "ppo_actor/task_reward/avg",
        "ppo_actor/final_reward/avg", "env/reward_mean",
        "objective/scores",
    ),
    "length": (
        "length", "completions/mean_length", "completion_length", "response_length/mean",
        "rollout/response_length_mean", "response_length", "rollout/response_lengths", "rollout/response_len/mean",
        "generate/avg_num_tokens", "mean_gen_tokens_per_sample",
    ),
    "cut_off": (
        "cut_off", "completions/clipped_ratio", "response_length/clip_ratio", "rollout/truncated_rate",
        "response_clip_ratio", "rollout/truncated", "rollout/truncated_ratio", "ppo_actor/no_eos_ratios/avg",
    ),
    "repeats": ("repeats",),
    "chosen_logp": ("chosen_logp", "logps/chosen"),
    "rejected_logp": ("rejected_logp", "logps/rejected"),
    "margin": ("margin", "rewards/margins"),
    "score_min": ("score_min", "min_reward"),
    "score_max": ("score_max", "max_reward"),
    "value_loss": ("value_loss", "critic/vf_loss", "critic_loss", "loss/value_avg", "ppo/loss/value"),
    "explained_variance": ("explained_variance", "critic/vf_explained_var", "ppo/val/var_explained"),
    "lag": ("lag",),
    "mismatch": (
        "mismatch", "sampling/sampling_logp_difference/mean", "rollout_corr/log_ppl_abs_diff",
        "train_rollout_logprob_abs_diff", "policy/rollout_train_logprobs_abs_diff_mean",
    ),
    "mismatch_max": ("mismatch_max", "sampling/sampling_logp_difference/max"),
}  # fmt: skip
"""Signals with their names in logs, ours first; the first match counts."""

_OWN = "signals/"
"""Prefix of signal names in a guarded run's steps.jsonl."""
_BEFORE = ("", "train/")
"""Prefixes of names that trl, OpenRLHF and slime send to trackers (wandb, TensorBoard)."""
_TOLD = lazy_regex(r"stayfinite: step (\d+): ([a-z-]+): (.+?)\. Training continues")
"""A guard's message on the terminal."""
_PART = lazy_regex(r"(?:train/)?rewards/(.+)/mean$")
_SPREAD = ("critic/advantages/max", "critic/advantages/min")
_POLICYS_OWN = ("kl", "entropy", "chosen_logp", "rejected_logp")
"""Signals of the policy's log-probabilities: if they stay non-finite, its weights are."""
_OF_ANY_MODEL = frozenset(("kl", "kl_loss", "train/kl", "train/kl_loss"))
_OF_A_POLICY = frozenset(NAMES) - {"kl", "length", "value_loss", "lag", "repeats"}
"""Signals that tell a policy's KL from that of a variational model."""
_SAMPLED = frozenset(("kl", "entropy", "length", "cut_off", "equal_groups", "advantage_std", "clipped"))
"""With one of these, a reward belongs to sampled answers, not to a game's episodes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A sign and its location in the log."""

    sign: Sign
    where: str


def signs_in(runs: Sequence[RunSeries]) -> dict[str, Seen]:
    """The first sign of each cause in these logs."""
    found: dict[str, Seen] = {}
    for run in runs:
        found |= {cause: seen for cause, seen in _told_in(run) if cause not in found}
        lost = lost_from(run)
        rows = [row for row in signals_in(run) if lost is None or row[1] < lost]  # later rows are consequences
        if len(rows) < LEAST_LINES:
            continue
        sampled = any(not _SAMPLED.isdisjoint(signals) for _, _, signals in rows)
        few = max(2, len(rows) // 4)
        watch = PostTraining(early=min(EARLY, few), late=min(LATE, few))
        for step, line, signals in rows:
            for sign in watch.take(step, signals):
                falls = sign.cause == REWARD_FALLS
                if sign.cause not in found and not (falls and (not sampled or _came_back(sign, rows))):
                    found[sign.cause] = Seen(sign, run.where(line))
    return found


def _came_back(sign: Sign, rows: Sequence[tuple[int, int, Mapping[str, float]]]) -> bool:
    """Whether the rewards at the end of a log are nearer to their best than to where they had fallen."""
    rewards = [signals["reward"] for _, _, signals in rows if "reward" in signals]
    return median(rewards[-max(LEAST_LINES, len(rows) // 10) :]) >= (sign.value + sign.usual) / 2


def lost_from(run: RunSeries) -> int | None:
    """The line from which the policy's own numbers stay non-finite; None if they are finite."""
    found = names_in(run)
    last = [_lost_for_good(run.metrics[found[name]]) for name in _POLICYS_OWN if name in found]
    return min((line for line in last if line is not None), default=None)


def samples(run: RunSeries) -> bool:
    """Whether a policy is trained on rewards of its own answers."""
    found = names_in(run)
    return "reward" in found and not _SAMPLED.isdisjoint(found)


def policy_lost(run: RunSeries, line: int) -> bool:
    """Whether a policy's entropy is non-finite at a line, and so its logits, whatever the loss."""
    name = names_in(run).get("entropy") if samples(run) else None
    track = None if name is None else run.metrics[name]
    return track is not None and any(
        at == line and not math.isfinite(value) for value, at in zip(track.values, track.lines, strict=True)
    )


def _lost_for_good(track: Track) -> int | None:
    finite = [math.isfinite(value) for value in track.values]
    after = len(finite) - finite[::-1].index(True) if any(finite) else 0
    return track.lines[after] if after < len(finite) else None


def _told_in(run: RunSeries) -> Iterator[tuple[str, Seen]]:
    """Reports of a guard during the run, the first of each cause last."""
    for message in reversed(run.messages):
        told = _TOLD.search(message.text)
        if told is not None and told.group(2) in CAUSES:
            variant = ALL_RIGHT if re.search("gets? the best reward", told.group(3)) else ""
            sign = Sign(told.group(2), "", int(told.group(1)), math.nan, math.nan, told.group(3), variant)
            yield sign.cause, Seen(sign, message.where)


def signals_in(run: RunSeries) -> Iterator[tuple[int, int, dict[str, float]]]:
    """``(step, line, signals)`` of each line with signals; lines are counted if the log has no steps."""
    rows: dict[int, tuple[float | None, dict[str, float]]] = {}
    for signal, name in names_in(run).items():
        track = run.metrics[name]
        for step, value, line in zip(track.steps, track.values, track.lines, strict=True):
            rows.setdefault(line, (step, {}))[1][signal] = value
    high = run.metrics.get(_SPREAD[0])
    if high is not None and _SPREAD[1] not in run.metrics:
        for line, value in zip(high.lines, high.values, strict=True):
            if line in rows:
                rows[line][1]["advantage_std"] = value  # the largest of numbers whose mean is 0
    if all(name in run.metrics for name in _SPREAD):
        high_at, low_at = (
            dict(zip(run.metrics[name].lines, run.metrics[name].values, strict=True)) for name in _SPREAD
        )
        for line in rows.keys() & high_at.keys() & low_at.keys():
            rows[line][1]["advantage_std"] = high_at[line] - low_at[line]
    for number, line in enumerate(sorted(rows), 1):
        step, signals = rows[line]
        yield number if step is None else int(step), line, signals


def names_in(run: RunSeries) -> dict[str, str]:
    """The signals of a log with their names there."""
    there = {
        signal: [
            whole
            for whole in (f"{_OWN}{signal}", *(f"{before}{name}" for name in names for before in _BEFORE))
            if whole in run.metrics
        ]
        for signal, names in NAMES.items()
    }
    found = {signal: names[0] for signal, names in there.items() if names}
    zero = any(found.get("kl") == f"{before}kl" and _all_zero(run, before) for before in _BEFORE)
    alone = found.get("kl") in _OF_ANY_MODEL and found.keys().isdisjoint(_OF_A_POLICY)
    if "chosen_logp" in found or zero or alone:
        # A variational model has a KL term of its own, to its prior.
        found.pop("kl", None)  # KTO's is that of whole answers; OpenRLHF logs 0 without a reference
    parts = ((_PART.match(name), name) for name in run.metrics)
    return found | {f"reward/{part.group(1)}": name for part, name in parts if part is not None}


def _all_zero(run: RunSeries, before: str) -> bool:
    names = (f"{before}kl", f"{before}logprobs_diff")
    return all(name in run.metrics and not any(run.metrics[name].values) for name in names)
