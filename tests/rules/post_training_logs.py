"""Logs of reinforcement and preference training as trl 1.16, verl and OpenRLHF print them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

Shape = Callable[[float], float]
"""A signal over the run, whose length is 1."""

LINES = 30


def ramp(first: float, last: float) -> Shape:
    return lambda t: first + (last - first) * min(1.0, max(0.0, 2 * t - 0.5))


def lost(before: float, after: float = math.nan) -> Shape:
    """A level that is another one, or NaN, in the last third."""
    return lambda t: after if t > 0.7 else before


def growth(first: float, last: float) -> Shape:
    return lambda t: first * (last / first) ** min(1.0, max(0.0, 2 * t - 0.5))


def level(value: float) -> Shape:
    return lambda t: value


HEALTHY: dict[str, Shape] = {
    "kl": lambda t: 0.01 * t,
    "entropy": lambda t: 0.5 - 0.1 * t,
    "reward": lambda t: 0.3 + 0.3 * t,
    "length": lambda t: 300 + 90 * t,
    "cut_off": level(0.02),
    "equal_groups": level(0.25),
    "clipped": level(0.002),
    "mismatch": level(0.02),
    "advantage": level(1.5),
    "explained": lambda t: 0.7 * t,
    "value_loss": lambda t: 0.5 - 0.3 * t,
}


def _values(changed: dict[str, Shape], lines: int) -> list[dict[str, float]]:
    draw = random.Random(7)
    shapes = HEALTHY | changed
    return [
        {name: shape(i / (lines - 1)) * (1 + 0.04 * draw.gauss(0, 1)) for name, shape in shapes.items()}
        | {name: shapes[name](i / (lines - 1)) for name in ("cut_off", "equal_groups", "advantage")}
        for i in range(lines)
    ]


def grpo(lines: int = LINES, *, text: bool = False, **changed: Shape) -> str:
    """trl's GRPOTrainer with vLLM: the loss is 0.0 by design; ``text``: numbers as transformers 5 prints them."""
    rows = []
    for i, now in enumerate(_values(changed, lines)):
        row = {
            "loss": 0.0, "grad_norm": 0.79 + 0.01 * (i % 3), "learning_rate": 1e-6 * (1 - i / lines),
            "num_tokens": 81920.0 * (i + 1), "completions/mean_length": now["length"],
            "completions/min_length": 31.0, "completions/max_length": 1024.0,
            "completions/clipped_ratio": now["cut_off"], "completions/mean_terminated_length": now["length"],
            "completions/min_terminated_length": 31.0, "completions/max_terminated_length": 998.0,
            "rewards/accuracy_reward/mean": now["reward"], "rewards/accuracy_reward/std": 0.41,
            "reward": now["reward"], "reward_std": 0.3 * (1 - now["equal_groups"]),
            "frac_reward_zero_std": now["equal_groups"],
            "sampling/sampling_logp_difference/mean": now["mismatch"],
            "sampling/sampling_logp_difference/max": 30 * now["mismatch"],
            "sampling/importance_sampling_ratio/min": 0.4, "sampling/importance_sampling_ratio/mean": 0.99,
            "sampling/importance_sampling_ratio/max": 2.0, "kl": now["kl"], "entropy": now["entropy"],
            "clip_ratio/low_mean": 0.0, "clip_ratio/low_min": 0.0, "clip_ratio/high_mean": now["clipped"],
            "clip_ratio/high_max": now["clipped"], "clip_ratio/region_mean": now["clipped"], "step_time": 21.4,
            "epoch": round(i / lines, 2),
        }  # fmt: skip
        rows.append(str({name: f"{value:.4g}" for name, value in row.items()} if text else row))
    return "\n".join(rows)


def dpo(chosen: Shape, rejected: Shape, lines: int = LINES) -> str:
    """trl's DPOTrainer."""
    draw, rows = random.Random(3), []
    for i in range(lines):
        noise = 1 + 0.08 * draw.gauss(0, 1)
        good, bad = chosen(i / (lines - 1)) * noise, rejected(i / (lines - 1)) * noise
        rows.append(
            str({
                "loss": 0.69 * math.exp(-2 * i / lines), "grad_norm": 7.9, "learning_rate": 5e-7, "entropy": 1.2,
                "num_tokens": 9000.0 * (i + 1), "logits/chosen": -1.2, "logits/rejected": -1.3,
                "mean_token_accuracy": 0.61, "rewards/chosen": 0.1 * (good + 120 * noise),
                "rewards/rejected": 0.1 * (bad + 130 * noise), "rewards/accuracies": 0.74,
                "rewards/margins": 0.1 * (good - bad + 10 * noise), "logps/chosen": good, "logps/rejected": bad,
                "epoch": round(i / lines, 2),
            })
        )  # fmt: skip
    return "\n".join(rows)


def verl(lines: int = LINES, *, digits: int | None = None, **changed: Shape) -> str:
    """verl's console, one line a step; older releases print three digits of everything, a rate of 1e-6 as 0.000."""
    rows, norm = [], changed.pop("grad_norm", level(0.13))
    for i, now in enumerate(_values(changed, lines)):
        row = {
            "global_seqlen/min": 419336.0, "global_seqlen/max": 497506.0, "actor/entropy": now["entropy"],
            "actor/pg_clipfrac": now["clipped"], "actor/ppo_kl": -8.2e-06, "actor/pg_loss": 0.0004 * (i % 5 - 2),
            "actor/kl_loss": now["kl"], "actor/kl_coef": 0.001, "actor/grad_norm": norm(i / lines), "actor/lr": 1e-06,
            "training/global_step": float(i + 1), "training/epoch": 0.0, "critic/vf_loss": now["value_loss"],
            "critic/vf_explained_var": now["explained"], "critic/score/mean": now["reward"], "critic/score/max": 1.0,
            "critic/score/min": 0.0, "critic/rewards/mean": now["reward"], "critic/advantages/mean": -0.04,
            "critic/advantages/max": now["advantage"], "critic/advantages/min": -now["advantage"],
            "response_length/mean": now["length"], "response_length/max": 1024.0, "response_length/min": 38.0,
            "response_length/clip_ratio": now["cut_off"], "prompt_length/mean": 102.5,
            "prompt_length/clip_ratio": 0.0, "timing_s/gen": 74.02, "timing_s/step": 96.55, "perf/throughput": 912.4,
        }  # fmt: skip
        said = (f"{name}:{value:.{digits}f}" if digits else f"{name}:{value}" for name, value in row.items())
        rows.append(f"(TaskRunner pid=222265) step:{i + 1} - {' - '.join(said)}")
    return "\n".join(rows)


def openrlhf(lines: int = LINES, **changed: Shape) -> str:
    """OpenRLHF's line after each global step."""
    rows, norm = [], changed.pop("grad_norm", level(0.41))
    for i, now in enumerate(_values(changed, lines)):
        row = {
            "policy_loss": 0.0004 * (i % 5 - 2), "actor_lr": 5e-07, "ppo_clip_ratio": now["clipped"],
            "ppo_kl": 1.2e-05, "kl": now["kl"], "logprobs_diff": 0.0011, "reward": now["reward"],
            "return": now["reward"], "response_length": now["length"], "total_length": now["length"] + 102.0,
            "response_clip_ratio": now["cut_off"], "actor_grad_norm": norm(i / lines), "critic_loss": now["value_loss"],
            "kl_coef": 0.01, "rollout/reward_mean": now["reward"], "rollout/reward_std": 0.44,
            "rollout/response_length_mean": now["length"], "rollout/truncated_rate": now["cut_off"],
            "rollout/num_samples": 1024.0, "timing/make_experience": 12.5, "timing/ppo_train": 33.2,
        }  # fmt: skip
        rows.append(f"(PPOTrainer pid=4321) 2026-08-14 10:{i:02d}:07 INFO     ✨ Global step {i + 1}: {row}")
    return "\n".join(rows)


def reward_model(spread: float, lines: int = LINES) -> str:
    """trl's RewardTrainer; scores spread over so much at first, and more as it learns."""
    rows = []
    for i in range(lines):
        wide = spread * (1 + 20 * i / lines)
        rows.append(
            str({
                "loss": 0.6931 - 0.3 * (spread > 0) * i / lines, "grad_norm": 1.9, "learning_rate": 1e-5,
                "min_reward": 0.31 - wide, "mean_reward": 0.31, "max_reward": 0.31 + wide,
                "accuracy": 0.5 + 0.3 * (spread > 0) * i / lines, "margin": wide / 2, "epoch": round(i / lines, 2),
            })
        )  # fmt: skip
    return "\n".join(rows)


def slime(lines: int = LINES, **changed: Shape) -> str:
    """slime's two lines a step, from the rollout and from the update; the loss is 0 at the first update."""
    rows = []
    for i, now in enumerate(_values(changed, lines)):
        rollout = {
            "rollout/response_lengths": now["length"], "rollout/rewards": 0.0, "rollout/truncated": now["cut_off"],
            "rollout/raw_reward": now["reward"], "rollout/log_probs": -0.27,
        }  # fmt: skip
        update = {
            "train/loss": 1e-6 * (i % 3 - 1), "train/pg_loss": 1e-6 * (i % 3 - 1), "train/entropy_loss": now["entropy"],
            "train/pg_clipfrac": now["clipped"], "train/ppo_kl": 6e-12, "train/kl_loss": now["kl"],
            "train/train_rollout_logprob_abs_diff": now["mismatch"], "train/grad_norm": 0.36 + 0.01 * (i % 4),
            "train/lr-pg_0": 1e-6, "train/step": i,
        }  # fmt: skip
        rows += [
            f"(Actor pid=1) model.py:847 - rollout {i}: {rollout}",
            f"(Actor pid=1) model.py:9 - step {i}: {update}",
        ]
    return "\n".join(rows)


def tracked(kind: str, lines: int = LINES, **changed: Shape) -> str:
    """What wandb was told, as JSON lines."""
    rows = []
    for i, now in enumerate(_values(changed, lines)):
        small = 0.01 + 0.001 * (i % 5)
        known: dict[str, dict[str, float]] = {
            "OpenRLHF": {
                "train/policy_loss": small, "train/kl": now["kl"], "train/reward": now["reward"],
                "train/response_length": now["length"], "train/ppo_clip_ratio": now["clipped"],
                "train/response_clip_ratio": now["cut_off"], "train/entropy_loss": now["entropy"],
                "train/global_step": i,
            },
            "SkyRL": {
                "policy/policy_loss": small, "policy/policy_entropy": now["entropy"], "policy/policy_kl": now["kl"],
                "policy/ppo_clip_ratio": now["clipped"], "policy/raw_grad_norm": 0.3 + small,
                "reward/avg_raw_reward": now["reward"], "generate/avg_num_tokens": now["length"],
                "trainer/global_step": i,
            },
            "AReaL": {
                "ppo_actor/update/actor_loss/avg": small, "ppo_actor/update/entropy/avg": now["entropy"],
                "ppo_actor/update/clip_ratio/avg": now["clipped"], "ppo_actor/task_reward/avg": now["reward"],
                "ppo_actor/no_eos_ratios/avg": now["cut_off"], "global_step": i,
            },
        }  # fmt: skip
        rows.append(json.dumps(known[kind]))
    return "\n".join(rows)
