"""What a training is, and small parts that several share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from benchmarks.harm.arms import Arm

Metrics = dict[str, float]
"""Figures of a finished training, lower is better; those of a rare group carry its name."""

Body = Callable[[Arm, int], Metrics]
Any_ = TypeVar("Any_", bound=Body)


@dataclass(frozen=True, slots=True)
class Training:
    """A program that trains something from a seed, by whatever arm it is given."""

    name: str
    body: Body

    @property
    def words(self) -> str:
        """What it is, in a line."""
        return (self.body.__doc__ or "").strip().splitlines()[0]


HEALTHY: list[Training] = []
HARMFUL: list[Training] = []


def healthy(body: Any_) -> Any_:
    """Register a training that nothing is wrong with."""
    HEALTHY.append(Training(body.__name__.replace("_", " "), body))
    return body


def harmful(body: Any_) -> Any_:
    """Register a training that something happens to."""
    HARMFUL.append(Training(body.__name__.replace("_", " "), body))
    return body


class Source:
    """Random numbers of a training's data: its own, so that going back in the training does not repeat the data."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator)

    def chance(self, share: float) -> bool:
        return float(self.uniform(1)) < share

    def draw(self, shares: Tensor, count: int) -> Tensor:
        return torch.multinomial(shares, count, replacement=True, generator=self.generator)


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them."""
    layers: list[nn.Module] = []
    for one, other in pairwise(sizes):
        layers += [nn.Linear(one, other), activation()]
    return nn.Sequential(*layers[:-1])


class NextToken(nn.Module):
    """A language model of the last few tokens: embeddings, one hidden layer, logits."""

    def __init__(self, vocabulary: int, context: int = 4, width: int = 24, hidden: int = 96) -> None:
        super().__init__()
        self.context = context
        self.embed = nn.Embedding(vocabulary, width)
        self.body = mlp(context * width, hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mean loss over a batch of texts, [rows, length]."""
        windows = tokens.unfold(1, self.context + 1, 1).reshape(-1, self.context + 1)
        logits = self.body(self.embed(windows[:, :-1]).flatten(1))
        return nn.functional.cross_entropy(logits, windows[:, -1])


class Grammar:
    """Texts in which each token depends on the one before: a Markov chain over some of the tokens."""

    POOL = 4096
    """Texts that are drawn at a time; batches are taken from them."""

    def __init__(self, source: Source, first: int, count: int, sharpness: float = 2.5) -> None:
        self.first, self.count = first, count
        self.table = torch.softmax(sharpness * source.normal(count, count), dim=1)
        self.pools: dict[int, Tensor] = {}

    def texts(self, source: Source, rows: int, length: int) -> Tensor:
        """A batch, [rows, length]."""
        if length not in self.pools:
            token = source.integers(self.count, self.POOL)
            out = [token]
            for _ in range(length - 1):
                token = torch.multinomial(self.table[token], 1, generator=source.generator)[:, 0]
                out.append(token)
            self.pools[length] = torch.stack(out, dim=1) + self.first
        return self.pools[length][source.integers(self.POOL, rows)]
