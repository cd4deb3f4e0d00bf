"""Signals of reinforcement and preference training: planted failures by name, and their healthy look-alikes quiet."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stayfinite.core.post_training.signs import ALL_RIGHT, ALL_WRONG, CONSTANT, Sign
from stayfinite.core.post_training.watch import PostTraining

STEPS = 60
SEEDS = st.integers(0, 2**32 - 1)


def signs_of(steps: list[dict[str, float]], **windows: int) -> list[Sign]:
    """All signs of a whole run, in order."""
    watch = PostTraining(**windows)
    return [sign for number, signals in enumerate(steps, 1) for sign in watch.take(number, signals)]


def ramp(first: float, last: float, step: int, *, start: int = 10, end: int = 40) -> float:
    """From the first value to the last between two steps."""
    share = min(1.0, max(0.0, (step - start) / (end - start)))
    return first + (last - first) * share


def growth(first: float, last: float, step: int) -> float:
    return first * (last / first) ** ramp(0.0, 1.0, step)


def run(seed: int, steps: int = STEPS, noise: float = 0.05, **shapes) -> list[dict[str, float]]:
    """A run's signals: each shape is a function of the step, with noise in proportion to it, but for a share of 1."""
    draw = random.Random(seed)
    noisy = [{name: shape(t) * (1 + noise * draw.gauss(0, 1)) for name, shape in shapes.items()} for t in range(steps)]
    return [
        {name: 1.0 if shapes[name](t) == 1 else value for name, value in row.items()} for t, row in enumerate(noisy)
    ]


PLANTED = {
    "kl-runaway": {
        "kl": lambda t: growth(0.002, 20.0, t), "entropy": lambda t: ramp(0.6, 0.2, t), "reward": lambda t: 0.5,
    },
    "entropy-collapse": {"entropy": lambda t: growth(0.8, 0.004, t), "reward": lambda t: 0.4},
    "grpo-zero-advantage": {"equal_groups": lambda t: float(t > 10), "reward": lambda t: 0.3 * (t <= 10)},
    "length-hacking": {
        "length": lambda t: ramp(80, 240, t), "reward": lambda t: ramp(0.3, 0.7, t),
        "cut_off": lambda t: ramp(0, 0.6, t),
    },
    "reward-on-truncated": {
        "length": lambda t: ramp(80, 240, t), "reward": lambda t: 0.5, "cut_off": lambda t: ramp(0.02, 0.9, t),
    },
    "ratio-explosion": {"ratio_mean": lambda t: growth(1.0, 30.0, t), "lag": lambda t: 12.0, "reward": lambda t: 0.5},
    "sampler-mismatch": {"mismatch": lambda t: 0.4, "mismatch_max": lambda t: 6.0, "reward": lambda t: 0.5},
    "dpo-both-fall": {
        "chosen_logp": lambda t: ramp(-120, -300, t, end=60), "rejected_logp": lambda t: ramp(-130, -500, t, end=60),
        "margin": lambda t: ramp(0.1, 12, t, end=60),
    },
    "value-explains-nothing": {
        "explained_variance": lambda t: 0.01, "value_loss": lambda t: 2.0, "reward": lambda t: 30.0,
    },
    "reward-falls": {"reward": lambda t: ramp(0.6, 0.05, t), "kl": lambda t: 0.02},
}  # fmt: skip
"""A planted failure by its name: found in the first 50 steps."""

HEALTHY = {
    "entropy that settles": {
        "entropy": lambda t: 0.25 + 0.75 * math.exp(-t / 40), "reward": lambda t: ramp(0.3, 0.5, t),
    },
    "entropy of a task that is learned": {
        "entropy": lambda t: growth(0.8, 0.004, t), "reward": lambda t: ramp(0.1, 1, t),
    },
    "entropy of supervised training": {"entropy": lambda t: growth(1.5, 0.01, t)},
    "KL to a plateau": {"kl": lambda t: 0.8 * math.tanh(t / 15), "reward": lambda t: ramp(0.3, 0.6, t)},
    "KL of a task that is learned": {
        "kl": lambda t: 2.5 * math.tanh(t / 40),
        "reward": lambda t: ramp(0.1, 0.9, t),
    },
    "KL of small batches, where one token jumps": {
        "kl": lambda t: 5.0 if t > 25 and t % 8 in (0, 1, 4, 5) else 0.8 * math.tanh(t / 15),
        "reward": lambda t: ramp(0.3, 0.9, t),
    },
    "KL of 0 at the start": {"kl": lambda t: max(0.0, 0.001 * (t - 3)), "reward": lambda t: 0.5},
    "early noisy ratios": {
        "ratio_max": lambda t: 5000.0 if t < 3 else 2.0, "ratio_mean": lambda t: 3.0 if t < 3 else 1.0,
        "clipped": lambda t: 0.6 if t < 3 else 0.02,
    },
    "many clipped by design": {"clipped": lambda t: 0.6, "ratio_mean": lambda t: 1.0},
    "groups partly equal": {"equal_groups": lambda t: 0.7, "reward": lambda t: ramp(0.5, 0.8, t)},
    "rounding in the sampler": {"mismatch": lambda t: 0.03, "mismatch_max": lambda t: 2.0},
    "chosen falls a little and stays": {
        "chosen_logp": lambda t: ramp(-120, -140, t), "rejected_logp": lambda t: ramp(-130, -260, t),
        "margin": lambda t: ramp(0.1, 6, t),
    },
    "chosen falls and stays": {
        "chosen_logp": lambda t: ramp(-120, -150, t, start=5, end=15),
        "rejected_logp": lambda t: ramp(-130, -260, t, end=20), "margin": lambda t: ramp(0.1, 6, t, end=20),
    },
    "longer reasoning": {
        "length": lambda t: ramp(80, 400, t), "reward": lambda t: ramp(0.3, 0.7, t), "cut_off": lambda t: 0.02,
    },
    "an end that is still being learned": {
        "length": lambda t: ramp(250, 90, t), "reward": lambda t: ramp(0.1, 0.6, t),
        "cut_off": lambda t: ramp(0.95, 0.1, t),
    },
    "answers of fixed length": {
        "length": lambda t: 16.0, "cut_off": lambda t: 1.0, "reward": lambda t: ramp(0.2, 0.9, t),
    },
    "a value function that learns": {
        "explained_variance": lambda t: ramp(-0.5, 0.6, t, start=0), "value_loss": lambda t: ramp(3, 1, t),
    },
    "a reward that dips for a few steps": {"reward": lambda t: 0.1 if 30 <= t < 32 else 0.6},
    "a reward with noise": {"reward": lambda t: 0.5 + 0.2 * math.sin(1.7 * t)},
}  # fmt: skip


@pytest.mark.parametrize("cause", PLANTED)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_a_planted_failure_is_found_by_its_name_in_the_first_fifty_steps(cause, seed):
    signs = signs_of(run(seed, **PLANTED[cause]))
    assert {sign.cause for sign in signs} == {cause} or (
        cause == "grpo-zero-advantage" and {sign.cause for sign in signs} == {cause, "reward-falls"}
    )
    first = next(sign for sign in signs if sign.cause == cause)
    assert first.step <= 50
    assert not first.text.endswith(".")
    assert first.advice


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_a_kl_that_runs_away_is_told_of_though_the_reward_rises(seed):
    signs = signs_of(run(seed, kl=lambda t: growth(0.002, 20.0, t), reward=lambda t: ramp(0.3, 0.9, t)))
    assert [sign.cause for sign in signs] == ["kl-runaway"]
    assert signs[0].step <= 50


@pytest.mark.parametrize("name", HEALTHY)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_a_healthy_look_alike_stays_quiet(name, seed):
    assert signs_of(run(seed, **HEALTHY[name])) == []


@pytest.mark.parametrize("cut", [5, 25, 40])
@pytest.mark.parametrize("cause", PLANTED)
def test_a_watch_that_was_saved_and_loaded_tells_the_same_at_the_same_steps(cause, cut):
    rows = run(7, **PLANTED[cause])
    watch = PostTraining()
    told = [sign for step in range(cut) for sign in watch.take(step + 1, rows[step])]
    resumed = PostTraining()
    resumed.load(json.loads(json.dumps(watch.to_json(), allow_nan=False)))
    assert resumed.standing == watch.standing
    told += [sign for step in range(cut, STEPS) for sign in resumed.take(step + 1, rows[step])]
    assert told == signs_of(rows)


def wandering(seed: int, level: float, memory: float, deviation: float, steps: int = 300) -> list[float]:
    """A level with noise that remembers: AR(1)."""
    draw, away, found = random.Random(seed), 0.0, []
    for _ in range(steps):
        away = memory * away + deviation * math.sqrt(1 - memory**2) * draw.gauss(0, 1)
        found.append(level + away)
    return found


def called_falling(rewards: list[list[float]]) -> int:
    return sum(any(sign.cause == "reward-falls" for sign in signs_of([{"reward": r} for r in run])) for run in rewards)


def test_a_reward_that_wanders_is_rarely_called_falling_and_one_that_breaks_down_always_is():
    still = [wandering(seed, 0.5, 0.95, 0.08) for seed in range(40)]
    broken = [[value - 0.45 * (step > 150) for step, value in enumerate(run)] for run in still]
    noisy = [wandering(seed, 0.5, 0.0, 0.08) for seed in range(10)]
    assert (called_falling(noisy), called_falling(broken)) == (0, 40)
    assert called_falling(still) <= 4  # of 40; 12 before wandering was measured


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, answers=st.sampled_from((4, 8, 16)), cut=st.floats(0.02, 0.98), equal=st.floats(0.0, 0.5))
@example(seed=1715421755, answers=16, cut=0.5, equal=0.0)  # explained variance of 0.3 is near 0 ten times in a row
@example(seed=11, answers=4, cut=0.9048, equal=0.5)
def test_signals_of_small_batches_that_only_fluctuate_are_quiet_for_300_steps(seed, answers, cut, equal):
    """Shares of four answers, or of one group, are 0 or 1 many times in a row."""
    draw = random.Random(seed)

    def share(chance: float, count: int) -> float:
        return sum(draw.random() < chance for _ in range(count)) / count

    rows = [
        {
            "cut_off": share(cut, answers), "reward": share(0.5, answers), "equal_groups": share(equal, answers // 4),
            "length": 50 + draw.gauss(0, 10) / answers**0.5, "entropy": 2 + draw.gauss(0, 0.1),
            "kl": abs(draw.gauss(0, 0.02)), "ratio_mean": math.exp(draw.gauss(0, 0.1)),
            "ratio_max": math.exp(abs(draw.gauss(0, 1.5))), "clipped": 0.2 * draw.random(),
            "mismatch": 0.03 * draw.random(), "explained_variance": draw.gauss(0.3, 0.2),
        }
        for _ in range(300)
    ]  # fmt: skip
    assert signs_of(rows) == []


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, batch=st.integers(4, 64), rate=st.floats(0.2, 0.9), gain=st.floats(0.0, 0.1))
def test_a_binary_reward_that_only_fluctuates_is_quiet_for_300_steps(seed, batch, rate, gain):
    """The mean of few rewards of 0 or 1 is as noisy as a reward can be."""
    draw = random.Random(seed)
    rewards = [
        sum(draw.random() < rate + gain * step / 300 for _ in range(batch)) / batch for step in range(300)
    ]  # fmt: skip
    assert signs_of([{"reward": reward} for reward in rewards]) == []


@pytest.mark.parametrize(
    ("rewards", "variant"),
    [
        ([0.2, 0.4, 0.5, 0.7, 0.9] + [1.0] * 20, ALL_RIGHT),
        ([0.2, 0.4, 0.3, 0.1, 0.2] + [0.0] * 20, ALL_WRONG),
        ([0.0] * 15, ALL_WRONG),
        ([-1.0] * 15, ALL_WRONG),
        ([0.5] * 15, CONSTANT),
    ],
)
def test_equal_rewards_are_told_apart_by_what_they_are(rewards, variant):
    rows = [{"equal_groups": float(step >= 5 or len(set(rewards)) == 1), "reward": r} for step, r in enumerate(rewards)]
    sign = next(sign for sign in signs_of(rows) if sign.cause == "grpo-zero-advantage")
    assert (sign.variant, sign.figures["reward"]) == (variant, rewards[-1])


def test_a_policy_that_jumped_away_and_gained_nothing_has_run_away():
    rows = run(5, kl=lambda t: 0.0 if t < 2 else 2.4, reward=lambda t: 0.5)
    assert [sign.cause for sign in signs_of(rows)] == ["kl-runaway"]
    learned = run(5, kl=lambda t: 0.0 if t < 2 else 2.4, reward=lambda t: 0.5 if t < 5 else 1.0)
    assert signs_of(learned) == []


def test_a_sign_is_told_once_and_again_after_it_had_long_gone_away():
    watch = PostTraining()
    levels = [0.01] * 10 + [0.5] * 20 + [0.01] * 40 + [0.5] * 10
    told = [step for step, level in enumerate(levels) if watch.take(step, {"mismatch": level})]
    assert told == [12, 72]


def test_values_that_are_missing_or_not_finite_say_nothing():
    rows = [{"kl": math.nan, "reward": math.inf} if step % 2 else {"entropy": 0.5} for step in range(60)]
    assert signs_of(rows) == []
    assert signs_of([{}] * 60) == []


def test_the_same_run_in_other_units_of_reward_gives_the_same_signs():
    shapes = PLANTED["length-hacking"]
    plain = run(3, **shapes)
    scaled = [row | {"reward": 1000 * row["reward"]} for row in plain]
    assert [(s.cause, s.step) for s in signs_of(plain)] == [(s.cause, s.step) for s in signs_of(scaled)]


def test_a_sign_reads_as_what_happened_and_what_to_do():
    sign = signs_of(run(1, **PLANTED["kl-runaway"]))[0]
    assert isinstance(sign, Sign)
    assert str(sign).startswith("KL to the reference rose from 0.00")
    assert ". Fix: lower the learning rate" in str(sign)
