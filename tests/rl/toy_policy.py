"""Post-training in small: answers of at most 24 tokens from a table of logits, one row for each place, guarded.

Every fault that is planted here is one line of the loop, as it is in real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from stayfinite import Guard, Policy, rl

END, RIGHT = 0, 3
TOKENS, LIMIT, GROUP, ANSWERS = 10, 24, 8, 64

Reward = Callable[[Tensor, Tensor], Tensor]
"""(tokens, lengths) -> one reward for each answer."""


def right_tokens(tokens: Tensor, lengths: Tensor) -> Tensor:
    """The share of the right token in the answer; an answer that never ends gets none."""
    places = torch.arange(LIMIT) < lengths[:, None]
    ended = lengths < LIMIT
    return ((tokens == RIGHT) & places).sum(1) / lengths.clamp(min=1) * ended


class Answers:
    """One batch of sampled answers."""

    def __init__(self, table: Tensor, drawn: torch.Generator, temperature: float = 1.0) -> None:
        chances = (table / temperature).softmax(-1)
        self.tokens = torch.stack(
            [torch.multinomial(row, ANSWERS, replacement=True, generator=drawn) for row in chances], dim=1
        )
        ended = (self.tokens == END).int()
        # The end belongs to the answer.
        self.mask = ended.cumsum(1) - ended == 0
        self.lengths = self.mask.sum(1) - ended.any(1).int()
        self.cut = ~ended.any(1)
        self.told = self.logprobs(table / temperature).detach()

    def logprobs(self, table: Tensor) -> Tensor:
        """Of the sampled tokens under these logits."""
        return table.log_softmax(-1).expand(ANSWERS, -1, -1).gather(-1, self.tokens[..., None])[..., 0]


class Training:
    """GRPO with a clipped ratio, or without; a run directory, and the signs that were told."""

    def __init__(self, run_dir: Path, *, rate: float = 1.0, seed: int = 0) -> None:
        self.drawn = torch.Generator().manual_seed(seed)
        self.table = nn.Embedding(LIMIT, TOKENS)
        with torch.no_grad():
            self.table.weight.normal_(0, 0.5, generator=self.drawn)
            self.table.weight[:, END] += 1.0
        self.reference = self.table.weight.detach().clone()
        self.value = nn.Linear(LIMIT, 1)
        self.run_dir = run_dir
        both = nn.ModuleDict({"policy": self.table, "value": self.value})
        self.optimizer = torch.optim.SGD(both.parameters(), lr=rate)
        self.guard = Guard(both, self.optimizer, policy=Policy(autopsy_seconds=0), run_dir=run_dir)

    def answers(self, temperature: float = 1.0) -> Answers:
        """Sample from the policy as it is."""
        return Answers(self.table.weight.detach(), self.drawn, temperature)

    def step(
        self,
        answers: Answers,
        reward: Reward = right_tokens,
        *,
        kl: float = 0.02,
        clip: float = 0.2,
        sign: float = 1.0,
        more: Tensor | float = 0.0,
    ) -> None:
        """One update by these answers; their own log-probabilities are the old ones."""
        rewards = reward(answers.tokens, answers.lengths).float()
        groups = rewards.reshape(-1, GROUP)
        advantages = ((groups - groups.mean(1, True)) / (groups.std(1, keepdim=True) + 1e-4)).reshape(-1)
        own = answers.logprobs(self.table.weight)
        told = answers.logprobs(self.reference)
        ratio, mask = (own - answers.told).exp(), answers.mask
        held = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - clip, 1 + clip) * advantages[:, None])
        apart = told - own
        distance = ((apart.exp() - apart - 1) * mask).sum() / mask.sum()
        loss = -sign * (held * mask).sum() / mask.sum() + kl * distance + more
        entropy = -(self.table.weight.softmax(-1) * self.table.weight.log_softmax(-1)).sum(-1)
        found = rl.signals(
            own.detach(), answers.told, told, advantages, mask, entropy=entropy.detach().expand(ANSWERS, -1),
            rewards=rewards, group_size=GROUP, tokens=answers.tokens, cut_off=answers.cut,
        )  # fmt: skip
        self.guard.step(loss, signals=found)

    def signs(self) -> dict[str, int]:
        """Causes that were told, with the step of each."""
        self.guard.close()
        lines = (self.run_dir / "events.jsonl").read_text().splitlines()
        told = [event for line in lines if (event := json.loads(line))["event"] == "sign"]
        return {event["cause"]: event["step"] for event in reversed(told)}
