"""REINFORCE and PPO on a small control task: the guard leaves what is learned alone, and says nothing."""

from __future__ import annotations

from statistics import mean, stdev

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from stayfinite import Guard, rl

EPISODES, LENGTH, UPDATES = 32, 12, 60
SEEDS = range(5)


class Cart:
    """A cart on a line is pushed left, not at all, or right, and is paid for being near the middle."""

    def __init__(self, made: torch.Generator) -> None:
        self.place = 2 * torch.rand(EPISODES, generator=made) - 1
        self.speed = torch.zeros(EPISODES)

    def seen(self) -> Tensor:
        return torch.stack([self.place, self.speed], dim=1)

    def push(self, action: Tensor) -> Tensor:
        self.speed = 0.9 * self.speed + 0.1 * (action - 1)
        self.place = self.place + self.speed
        return -self.place.abs()


class Player(nn.Module):
    """A policy over three actions, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, seen: Tensor) -> tuple[Categorical, Tensor]:
        inside = self.body(seen)
        return Categorical(logits=self.policy(inside)), self.value(inside).squeeze(-1)


@torch.no_grad()
def play(player: Player, made: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What was seen, done, its log-probability, and the return from there on; [episodes, steps, ...]."""
    cart, rows = Cart(made), []
    for _ in range(LENGTH):
        seen = cart.seen()
        chances, _ = player(seen)
        action = torch.multinomial(chances.probs, 1, generator=made).squeeze(1)
        rows.append((seen, action, chances.log_prob(action), cart.push(action)))
    seen, action, logprob, reward = (torch.stack(each, dim=1) for each in zip(*rows, strict=True))
    returns = reward.flip(1).cumsum(1).flip(1)
    return seen, action, logprob, returns


def learn(kind: str, seed: int, guard_dir=None, *, guarded: bool) -> tuple[float, Guard | None]:
    """The mean return of the last updates."""
    torch.manual_seed(seed)
    made = torch.Generator().manual_seed(seed)
    player = Player()
    optimizer = torch.optim.Adam(player.parameters(), 1e-2)
    guard = Guard(player, optimizer, max_norm=1.0, run_dir=guard_dir) if guarded else None
    reached = []
    for _ in range(UPDATES):
        seen, action, old, returns = play(player, made)
        reached.append(returns[:, 0].mean().item())
        for _ in range(4 if kind == "ppo" else 1):
            chances, value = player(seen)
            logprob = chances.log_prob(action)
            baseline = value.detach() if kind == "ppo" else returns.mean(0)
            advantage = returns - baseline
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            if kind == "ppo":
                ratio = (logprob - old).exp()
                surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                loss = 0.5 * (value - returns).square().mean() - surrogate - 0.01 * chances.entropy().mean()
            else:
                loss = -(logprob * advantage).mean() + 0 * value.mean()
            if guard is None:
                loss.backward()
                nn.utils.clip_grad_norm_(player.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                continue
            found = rl.signals(logprob, old, None, advantage, entropy=chances.entropy(), rewards=returns[:, 0])
            if kind == "ppo":
                found |= rl.value_signals(value, returns)
            guard.step(loss, signals=found)
    if guard is not None:
        guard.close()
    return mean(reached[-10:]), guard


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reinforce", "ppo"])
def test_what_is_learned_is_within_the_noise_of_what_is_learned_without_the_guard(tmp_path, kind):
    plain = [learn(kind, seed, guarded=False)[0] for seed in SEEDS]
    both = [learn(kind, seed, tmp_path / f"{seed}", guarded=True) for seed in SEEDS]
    guarded = [reached for reached, _ in both]
    untrained = mean(play(Player(), torch.Generator().manual_seed(seed))[3][:, 0].mean().item() for seed in SEEDS)
    assert mean(plain) > untrained + 2, "it learns at all"
    assert abs(mean(guarded) - mean(plain)) <= stdev(plain)
    assert [decision.step for _, guard in both for decision in guard.decisions if decision.refused] == []
    told = "".join((tmp_path / f"{seed}" / "events.jsonl").read_text() for seed in SEEDS)
    assert '"event": "sign"' not in told
