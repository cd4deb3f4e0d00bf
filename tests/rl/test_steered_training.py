"""A small policy runs away from its reference: the ladder holds it and puts it back; a healthy one is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from stayfinite import Guard, Policy, rl
from stayfinite.rl import Rung

CHOICES, GROUP, PROMPTS = 12, 8, 8


class Trained:
    """GRPO on a bandit: answers of 4 tokens from a policy that is a table, rewarded for a token, or at random."""

    def __init__(self, run_dir: Path, *, steered: bool, rate: float, kl: float = 0.02, noise: bool = False) -> None:
        self.noise = noise
        torch.manual_seed(0)
        self.policy = nn.Linear(4, CHOICES, bias=False)
        self.reference = self.policy.weight.detach().clone()
        optimizer = torch.optim.SGD(self.policy.parameters(), lr=rate)
        policy = Policy(prove_steps=5, snapshot_share=0.9, autopsy_seconds=0)
        self.guard = Guard(self.policy, optimizer, policy=policy, run_dir=run_dir)
        self.steering = rl.Steering(self.guard, kl=kl, patience=5) if steered else None
        self.kl = kl

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
        self.guard.close()

    def _step(self) -> None:
        prompts = torch.eye(4).repeat_interleave(PROMPTS * GROUP // 4, 0)
        logits = self.policy(prompts).log_softmax(-1)[:, None].expand(-1, 4, -1)
        with torch.no_grad():
            tokens = torch.distributions.Categorical(logits=logits).sample()
            rewards = torch.rand(len(tokens)) if self.noise else (tokens == 3).float().mean(1)
            told = (
                (prompts @ self.reference.T)
                .log_softmax(-1)[:, None]
                .expand(-1, 4, -1)
                .gather(-1, tokens[..., None])[..., 0]
            )
            spread = rewards.reshape(-1, GROUP)
            advantages = ((spread - spread.mean(1, True)) / (spread.std(1, keepdim=True) + 1e-4)).reshape(-1)
            keep = rl.sound_groups(rewards, GROUP)
        own = logits.gather(-1, tokens[..., None])[..., 0]
        ratio = (own - own.detach()).exp()
        apart = told - own
        kl = (apart.exp() - apart - 1).mean()
        weight = self.kl if self.steering is None else self.steering.kl
        loss = -(ratio * advantages[:, None] * keep[:, None]).mean() + weight * kl
        found = rl.signals(
            own.detach(), own.detach(), told, advantages, torch.ones_like(own), rewards=rewards, group_size=GROUP
        )
        self.guard.step(loss, signals=found)
        if self.steering is not None:
            self.steering.follow()

    @property
    def distance(self) -> Tensor:
        return (self.policy.weight - self.reference).norm()


def events(run_dir: Path, *kinds: str) -> list[dict[str, object]]:
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] in kinds]


def test_a_policy_that_runs_away_is_tied_closer_to_its_reference(tmp_path: Path) -> None:
    free = Trained(tmp_path / "free", steered=False, rate=100.0, kl=0.002, noise=True)
    free.run(120)
    held = Trained(tmp_path / "held", steered=True, rate=100.0, kl=0.002, noise=True)
    held.run(120)
    assert events(tmp_path / "free", "sign")[0]["cause"] == "kl-runaway"
    assert held.steering is not None
    assert held.steering.done[:4] == [Rung.KL] * 3 + [Rung.RATE]
    assert held.distance < 0.8 * free.distance


def test_without_a_kl_term_its_rate_is_cut(tmp_path: Path) -> None:
    held = Trained(tmp_path, steered=True, rate=100.0, kl=0.0, noise=True)
    held.run(60)
    assert held.steering is not None
    assert held.steering.done[0] is Rung.RATE
    assert events(tmp_path, "cut")[0]["reason"] == "kl-runaway"


def test_a_healthy_policy_ends_with_the_same_bits(tmp_path: Path) -> None:
    plain = Trained(tmp_path / "plain", steered=False, rate=0.2)
    plain.run(60)
    steered = Trained(tmp_path / "steered", steered=True, rate=0.2)
    steered.run(60)
    assert steered.steering is not None
    assert steered.steering.done == []
    assert torch.equal(plain.policy.weight, steered.policy.weight)


def test_rolling_back_restores_weights_and_says_so(tmp_path: Path) -> None:
    trained = Trained(tmp_path, steered=False, rate=0.2)
    assert not trained.guard.roll_back("nothing to go back to yet")
    for _ in range(40):
        trained._step()
    before = trained.policy.weight.detach().clone()
    assert trained.guard.roll_back("kl-runaway")
    assert not torch.equal(before, trained.policy.weight)
    trained.run(5)
    (told,) = events(tmp_path, "rollback")
    assert (told["reason"], told["from_step"]) == ("kl-runaway", 40)
