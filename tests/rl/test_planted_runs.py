"""Faults of post-training, planted in a plain guarded loop: told by name within 50 steps; sound runs are quiet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from quick_ones import quick_ones
from rl.toy_policy import ANSWERS, END, LIMIT, TOKENS, Training, right_tokens
from stayfinite import Guard, Policy, rl

STEPS = 50


def noise(seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    return lambda tokens, lengths: torch.rand(len(tokens), generator=drawn)


def runs_away(place: Path) -> Training:
    """The KL term has the wrong sign."""
    training, reward = Training(place, rate=3.0), noise(1)
    for _ in range(STEPS):
        training.step(training.answers(), reward, kl=-1.0)
    return training


def loses_entropy(place: Path) -> Training:
    """An entropy bonus with the wrong sign."""
    training, reward = Training(place, rate=2.0), noise(1)
    for _ in range(STEPS):
        weights = training.table.weight
        entropy = -(weights.softmax(-1) * weights.log_softmax(-1)).sum(-1).mean()
        training.step(training.answers(), reward, kl=0.0, more=20.0 * entropy)
    return training


def cannot_parse(place: Path) -> Training:
    """The answer is never found, so that all rewards are 0."""
    training = Training(place)
    for _ in range(STEPS):
        training.step(training.answers(), lambda tokens, lengths: torch.zeros(ANSWERS))
    return training


def rewards_all_alike(place: Path) -> Training:
    """A reward function that returns the same for everything."""
    training = Training(place)
    for _ in range(STEPS):
        training.step(training.answers(), lambda tokens, lengths: torch.full((ANSWERS,), 0.5))
    return training


def pays_for_length(place: Path) -> Training:
    """Longer answers get more, also those that are cut off."""
    training = Training(place, rate=20.0)
    for _ in range(STEPS):
        training.step(training.answers(), lambda tokens, lengths: lengths / LIMIT, kl=0.0)
    return training


def rewards_what_is_cut(place: Path) -> Training:
    """The end is pushed away by a wrong mask, and the reward does not mind."""
    training, reward = Training(place), noise(1)
    for _ in range(STEPS):
        training.step(training.answers(), reward, more=5.0 * training.table.weight[:, END].mean())
    return training


def learns_from_old_samples(place: Path) -> Training:
    """Samples of the first step are used for ever, and the ratio is not clipped."""
    training = Training(place, rate=20.0)
    old = training.answers()
    for _ in range(STEPS):
        training.step(old, clip=1e6, kl=0.0)
    return training


def falls_back(place: Path) -> Training:
    """Advantages change their sign half way."""
    training = Training(place, rate=10.0)
    for step in range(STEPS):
        training.step(training.answers(), sign=1.0 if step < 25 else -1.0, kl=0.0)
    return training


FAULTS: dict[str, tuple[Callable[[Path], Training], str]] = {
    "rate": (runs_away, "kl-runaway"),
    "entropy": (loses_entropy, "entropy-collapse"),
    "parsing": (cannot_parse, "grpo-zero-advantage"),
    "constant reward": (rewards_all_alike, "grpo-zero-advantage"),
    "length": (pays_for_length, "length-hacking"),
    "truncation": (rewards_what_is_cut, "reward-on-truncated"),
    "stale samples": (learns_from_old_samples, "ratio-explosion"),
    "falling reward": (falls_back, "reward-falls"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_told_by_its_name(fault: str, tmp_path: Path) -> None:
    plant, cause = FAULTS[fault]
    told = plant(tmp_path).signs()
    assert told.get(cause, STEPS + 1) <= STEPS, told


@pytest.mark.parametrize("seed", quick_ones(range(5), 0, 1))
def test_sound_training_is_quiet_and_learns(seed: int, tmp_path: Path) -> None:
    training = Training(tmp_path, rate=2.0, seed=seed)
    began = training.answers()
    for _ in range(100):
        training.step(training.answers(), kl=0.05)
    ended = training.answers()
    assert training.signs() == {}
    assert right_tokens(ended.tokens, ended.lengths).mean() > right_tokens(began.tokens, began.lengths).mean() + 0.2


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_sampler_with_a_temperature_of_its_own_is_told(temperature: float, tmp_path: Path) -> None:
    training = Training(tmp_path)
    for _ in range(STEPS):
        answers = training.answers(temperature)
        own = answers.logprobs(training.table.weight)
        found = rl.signals(own.detach(), mask=answers.mask, sampler_logprobs=answers.told)
        training.guard.step(-(own * answers.mask).mean() * 1e-3, signals=found)
    assert ("sampler-mismatch" in training.signs()) == (temperature != 1.0)


@pytest.mark.parametrize(("rate", "told"), [(0.5, False), (60.0, True)])
def test_preferences_that_lower_both_answers_are_told(rate: float, told: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    policy = nn.Linear(8, TOKENS)
    reference = nn.Linear(8, TOKENS)
    reference.load_state_dict(policy.state_dict())
    guard = Guard(
        policy, torch.optim.SGD(policy.parameters(), lr=rate), policy=Policy(autopsy_seconds=0), run_dir=tmp_path
    )
    drawn = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        prompts = torch.randn(32, 8, generator=drawn)
        own, ref = policy(prompts).log_softmax(-1), reference(prompts).log_softmax(-1).detach()
        # Both answers are rare ones; what is taken from the one that is rejected goes to all others.
        chosen, rejected = own[:, 1] + own[:, 2], own[:, 1] + own[:, 3] + own[:, 4]
        ref_chosen, ref_rejected = ref[:, 1] + ref[:, 2], ref[:, 1] + ref[:, 3] + ref[:, 4]
        margin = 0.1 * (chosen - rejected - ref_chosen + ref_rejected)
        found = rl.preference_signals(chosen, rejected, ref_chosen, ref_rejected, beta=0.1)
        guard.step(-nn.functional.logsigmoid(margin).mean(), signals=found)
    guard.close()
    assert ("dpo-both-fall" in (tmp_path / "events.jsonl").read_text()) == told


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_value_head_that_nobody_trains_is_told(forgotten: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    policy, value = nn.Linear(8, 2), nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    trained = nn.ModuleList([policy] if forgotten else [policy, value])
    guard = Guard(
        trained, torch.optim.Adam(trained.parameters(), lr=0.01), policy=Policy(autopsy_seconds=0), run_dir=tmp_path
    )
    drawn = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        states = torch.randn(64, 8, generator=drawn)
        returns = states[:, 0] + 0.1 * torch.randn(64, generator=drawn)
        guess = value(states)[:, 0]
        loss = policy(states).square().mean() + (guess - returns).square().mean()
        found = rl.value_signals(guess.detach(), returns) | {"reward": returns.mean()}
        guard.step(loss, signals=found)
    guard.close()
    assert ("value-explains-nothing" in (tmp_path / "events.jsonl").read_text()) == forgotten
