"""Half precision ends at 65,504."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.failures.steps.record import Training, fault

COUNT = 6
HALF = partial(torch.autocast, "cpu", torch.float16)

Pair = tuple[Tensor, Tensor]


def _pairs(columns: int = 12) -> list[Pair]:
    return [(torch.randn(10, columns), torch.randint(0, 4, (10,))) for _ in range(COUNT)]


@fault("fp16-overflow", "fp16-overflow-model-family")
def one_module_leaves_the_range() -> Training:
    """An outlier in the second of three layers."""
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.LayerNorm(24), nn.Linear(24, 4))
    with torch.no_grad():
        model[0].weight.mul_(60)
        model[2].weight.mul_(4000)

    def forward(batch: Pair) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return Training(
        model=model, forward=forward, batches=_pairs(), optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
        autocast=HALF,
    )  # fmt: skip


@fault("fp16-overflow", "fp16-overflow-model-family")
def squares_summed_in_half() -> Training:
    """A norm of one's own, in fp16: 300 squared is beyond the range."""
    inner, head = nn.Linear(12, 32), nn.Linear(32, 4)
    model = nn.ModuleDict({"inner": inner, "head": head})
    with torch.no_grad():
        inner.weight.mul_(400)

    def forward(batch: Pair) -> Tensor:
        hidden = inner(batch[0])
        norm = (hidden * hidden).sum(-1, keepdim=True, dtype=hidden.dtype).sqrt()
        return F.cross_entropy(head(hidden / norm), batch[1]) + 1e-4 * norm.mean()

    return Training(
        model=model, forward=forward, batches=_pairs(), optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
        autocast=HALF,
    )  # fmt: skip


@fault("fp16-overflow", "attention-unscaled", "fp16-overflow-model-family")
def scores_of_attention_in_half() -> Training:
    """Queries times keys, not divided by the root of the width."""
    query, key, head = nn.Linear(12, 64), nn.Linear(12, 64), nn.Linear(12, 4)
    model = nn.ModuleDict({"query": query, "key": key, "head": head})
    with torch.no_grad():
        query.weight.mul_(120)
        key.weight.mul_(120)
    batches = [(torch.randn(6, 5, 12), torch.randint(0, 4, (6,))) for _ in range(COUNT)]

    def forward(batch: Pair) -> Tensor:
        scores = query(batch[0]) @ key(batch[0]).transpose(1, 2)
        return F.cross_entropy(head(scores.softmax(-1) @ batch[0]).mean(1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
        autocast=HALF,
    )  # fmt: skip


@fault("fp16-overflow")
def mask_of_minus_a_billion() -> Training:
    """-1e9 cannot be written in fp16; torch says so itself."""
    model = nn.Linear(12, 4).half()
    batches = [(x.half(), y) for x, y in _pairs()]

    def forward(batch: Pair) -> Tensor:
        scores = model(batch[0])
        scores = scores.masked_fill(batch[0][:, :4] > 1.5, -1e9)
        return F.cross_entropy(scores.float(), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3)
    )


@fault("adam-eps-underflow", "pure-fp16-weights")
def epsilon_of_adam_is_zero_in_half() -> Training:
    """Weights and moments in fp16, where 1e-8 is 0: the second step is 0/0."""
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).half()
    batches = [(x.half() / 100, y) for x, y in _pairs()]

    def forward(batch: Pair) -> Tensor:
        return F.cross_entropy(model(batch[0]).float(), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )


@fault("fp16-overflow", "naive-exp")
def temperature_of_a_contrastive_loss_in_half() -> Training:
    """exp(12) in fp16 is infinite."""
    model = nn.Linear(12, 16)
    batches = [(torch.randn(8, 12), torch.randn(8, 12)) for _ in range(COUNT)]

    def forward(batch: Pair) -> Tensor:
        a, b = (F.normalize(model(each), dim=-1).half() for each in batch)
        scores = torch.exp((a @ b.t()) * 20.0 + (a @ a.t()).diagonal()[:, None] * 5)
        return -(scores.diagonal() / scores.sum(1)).float().log().mean() + math.log(8)

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3)
    )
