"""What a training is, and small parts that several share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harm.arms import Arm

Metrics = dict[str, float]
"""Figures of a finished training, lower is better; those of a rare group carry its name."""

Pair = tuple[Tensor, Tensor]

Body = Callable[[Arm, "Source"], Metrics]
"""A program that trains something from a source of random numbers, by whatever arm it is given."""

HEALTHY: dict[str, Body] = {}
HARMFUL: dict[str, Body] = {}


def healthy(body: Body) -> Body:
    """Register a training that nothing is wrong with."""
    return HEALTHY.setdefault(body.__name__.replace("_", " "), body)


def harmful(body: Body) -> Body:
    """Register a training that something happens to."""
    return HARMFUL.setdefault(body.__name__.replace("_", " "), body)


class Source:
    """Random numbers of a training's data: its own, so that going back in the training does not repeat the data."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
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


def loss_with(model: nn.Module, measure: Callable[..., Tensor], **settings: Any) -> Callable[[Pair], Tensor]:
    """The loss of a pair of what the model is given and what it should say."""
    return lambda batch: measure(model(batch[0]), batch[1], **settings)


@torch.no_grad()
def measured(loss_of: Callable[[Any], Tensor], batch: Any) -> float:
    """The loss of a batch that is not trained on."""
    return float(loss_of(batch))


@torch.no_grad()
def taught(teacher: nn.Module, source: Source, width: int, rows: int, *, sharpness: float = 3) -> Pair:
    """Random rows, and the class that a random net gives to each."""
    x = source.normal(rows, width)
    return x, (sharpness * teacher(x)).argmax(1)


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
