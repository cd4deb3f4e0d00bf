"""Healthy trainings that make their own data: policies, values, two models against each other."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.harm.arms import Arm
from benchmarks.harm.trainings import Metrics, Source, healthy, mlp


class Pendulums:
    """Many cart-and-pole-like tasks at once: keep an unstable point near 0 by pushing left or right."""

    def __init__(self, source: Source, count: int) -> None:
        self.source, self.count = source, count
        self.state = self._fresh(count)

    def _fresh(self, count: int) -> Tensor:
        return 0.1 * self.source.normal(count, 2)

    def act(self, push: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, states that follow, and which ones have fallen and begin anew."""
        place, speed = self.state.unbind(1)
        speed = speed + 0.12 * (1.6 * place + (2.0 * push - 1.0)) + 0.03 * self.source.normal(self.count)
        place = place + 0.12 * speed
        fallen = place.abs() > 1.0
        reward = 1.0 - place.square() - 5.0 * fallen
        after = torch.stack([place, speed], dim=1)
        self.state = torch.where(fallen[:, None], self._fresh(self.count), after)
        return reward, after, fallen


@healthy
def reinforce(arm: Arm, source: Source) -> Metrics:
    """REINFORCE with a running baseline on an unstable point."""
    model = mlp(2, 32, 2, activation=nn.Tanh)
    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=5e-3))
    baseline, found = 0.0, []
    for _ in range(400):
        tasks = Pendulums(source, 16)
        logs, rewards = [], []
        for _ in range(25):
            options = model(tasks.state)
            chosen = (source.uniform(16) < torch.softmax(options, 1)[:, 1].detach()).float()
            logs.append(F.log_softmax(options, 1).gather(1, chosen.long()[:, None])[:, 0])
            rewards.append(tasks.act(chosen)[0])
        reward = torch.stack(rewards)
        gain = reward.flip(0).cumsum(0).flip(0)
        found.append(float(reward.mean()))
        loop.step(-(torch.stack(logs) * (gain - baseline)).mean())
        baseline = 0.9 * baseline + 0.1 * float(gain.mean())
    return {"1 - reward": 1 - sum(found[-50:]) / 50}


@healthy
def clipped_policy(arm: Arm, source: Source) -> Metrics:
    """PPO: several passes over the same samples, a clipped ratio, a value and an entropy term."""
    policy, value = mlp(2, 32, 2, activation=nn.Tanh), mlp(2, 32, 1, activation=nn.Tanh)
    model = nn.ModuleList([policy, value])
    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=3e-3), max_norm=0.5)
    tasks, found = Pendulums(source, 16), []
    for _ in range(60):
        states, pushes, logs, rewards, fallen = [], [], [], [], []
        with torch.no_grad():
            for _ in range(20):
                shares = F.log_softmax(policy(tasks.state), 1)
                chosen = (source.uniform(16) < shares[:, 1].exp()).long()
                states.append(tasks.state)
                pushes.append(chosen)
                logs.append(shares.gather(1, chosen[:, None])[:, 0])
                reward, _, fell = tasks.act(chosen.float())
                rewards.append(reward)
                fallen.append(fell)
            worth = value(tasks.state)[:, 0]
            returns: list[Tensor] = []
            for reward, fell in zip(reversed(rewards), reversed(fallen), strict=True):
                worth = reward + 0.95 * torch.where(fell, 0.0, worth)
                returns.insert(0, worth)
        found.append(float(torch.stack(rewards).mean()))
        state, push = torch.cat(states), torch.cat(pushes)
        old, gain = torch.cat(logs), torch.cat(returns)
        with torch.no_grad():
            advantage = gain - value(state)[:, 0]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        for _ in range(6):
            part = source.integers(len(state), 128)
            shares = F.log_softmax(policy(state[part]), 1)
            ratio = (shares.gather(1, push[part][:, None])[:, 0] - old[part]).exp()
            gains = torch.minimum(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part]).mean()
            entropy = -(shares.exp() * shares).sum(1).mean()
            loop.step(-gains + 0.5 * F.mse_loss(value(state[part])[:, 0], gain[part]) - 0.01 * entropy)
    return {"1 - reward": 1 - sum(found[-10:]) / 10}


@healthy
def target_network(arm: Arm, source: Source) -> Metrics:
    """DQN: values of actions, towards those of a copy that is renewed every 100 steps."""
    model = mlp(2, 48, 2)
    target = copy.deepcopy(model)
    loop = arm.take(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    tasks = Pendulums(source, 4)
    memory: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []
    found = []
    for step in range(2000):
        with torch.no_grad():
            before = tasks.state
            best = model(before).argmax(1)
            explore = source.uniform(4) < max(0.05, 1 - step / 800)
            chosen = torch.where(explore, source.integers(2, 4), best)
            reward, after, fallen = tasks.act(chosen.float())
            memory.append((before, chosen, reward, after, fallen))
            found.append(float(reward.mean()))
        if len(memory) < 16:
            continue
        picked = [memory[int(place)] for place in source.integers(len(memory), 8)]
        state, action, gain, following, over = (torch.cat(each) for each in zip(*picked, strict=True))
        with torch.no_grad():
            aim = gain + 0.95 * torch.where(over, 0.0, target(following).max(1).values)
        loop.step(F.mse_loss(model(state).gather(1, action[:, None])[:, 0], aim))
        if step % 100 == 0:
            target.load_state_dict(model.state_dict())
    return {"1 - reward": 1 - sum(found[-400:]) / 400}


@healthy
def adversaries(arm: Arm, source: Source) -> Metrics:
    """A GAN on points of a ring: two models, two optimizers, losses that rise and fall against each other."""
    maker, judge = mlp(4, 48, 2), mlp(2, 48, 1)
    ours = arm.take(maker, torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.99)))
    theirs = arm.take(judge, torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.99)))

    def real(rows: int) -> Tensor:
        angle = 6.283 * source.uniform(rows)
        return torch.stack([angle.cos(), angle.sin()], dim=1)

    for _ in range(1200):
        with torch.no_grad():
            made = maker(source.normal(64, 4))
        theirs.step(F.softplus(-judge(real(64))).mean() + F.softplus(judge(made)).mean())
        ours.step(F.softplus(-judge(maker(source.normal(64, 4)))).mean())
        judge.zero_grad()
    with torch.no_grad():
        radius = maker(source.normal(4096, 4)).norm(dim=1)
        return {"distance": float((radius - 1).abs().mean())}
