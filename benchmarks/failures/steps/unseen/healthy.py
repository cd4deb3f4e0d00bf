"""Healthy trainings that look sick to a hasty eye."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.failures.steps.record import Training, look_alike

COUNT = 40
HALF = partial(torch.autocast, "cpu", torch.float16)

Pair = tuple[Tensor, Tensor]


def _pairs(scale: float = 1.0, count: int = COUNT) -> list[Pair]:
    weights = torch.randn(8)
    inputs = [torch.randn(16, 8) for _ in range(count)]
    return [(x, scale * (x @ weights)) for x in inputs]


def _network(outputs: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, outputs))


def _training(model: nn.Module, batches: list[Pair], rate: float = 3e-3) -> Training:
    def forward(batch: Pair) -> Tensor:
        return F.mse_loss(model(batch[0]).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=rate)
    )


@look_alike
def causal_mask_of_minus_infinity() -> Training:
    """-inf above the diagonal is how a mask is written."""
    embed, attention, head = nn.Embedding(20, 16), nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 20)
    model = nn.ModuleDict({"embed": embed, "attention": attention, "head": head})
    batches = [torch.arange(9)[None].add(torch.randint(0, 20, (8, 1))) % 20 for _ in range(COUNT)]
    mask = torch.full((8, 8), -math.inf).triu(1)

    def forward(batch: Tensor) -> Tensor:
        x = embed(batch[:, :-1])
        out, _ = attention(x, x, x, attn_mask=mask)
        return F.cross_entropy(head(x + out).flatten(0, 1), batch[:, 1:].flatten())

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=3e-3)
    )


@look_alike
def most_labels_ignored() -> Training:
    """One label a row counts."""
    model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12))
    batches = []
    for _ in range(COUNT):
        ids = torch.randint(0, 12, (8, 6))
        labels = torch.full_like(ids, -100)
        labels[:, 2] = ids[:, 2]
        batches.append((ids, labels))

    def forward(batch: Pair) -> Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=-100)

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=3e-3)
    )


@look_alike
def both_branches_made_safe() -> Training:
    """The double ``where``: the logarithm never sees 0."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU())

    def forward(batch: Pair) -> Tensor:
        active = model(batch[0])
        safe = torch.where(active > 0, active, torch.ones_like(active))
        return (torch.where(active > 0, safe.log(), torch.zeros_like(active)).mean(1) - batch[1]).pow(2).mean()

    return Training(
        model=model, forward=forward, batches=_pairs(0.1), optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )


@look_alike
def targets_in_the_thousands() -> Training:
    """The loss begins at millions and falls."""
    return _training(nn.Linear(8, 1), _pairs(3000.0), rate=150.0)


@look_alike
def loss_of_exactly_zero_now_and_then() -> Training:
    """A hinge that is satisfied."""
    model = nn.Linear(8, 1)

    def forward(batch: Pair) -> Tensor:
        return F.relu(0.3 - model(batch[0]).squeeze(-1) * batch[1].sign()).mean()

    return Training(
        model=model, forward=forward, batches=_pairs(), optimizer=torch.optim.SGD(model.parameters(), lr=0.5)
    )


@look_alike
def every_eighth_batch_is_harder() -> Training:
    """Twice the spread: a mixture of two sources."""
    batches = _pairs()
    batches = [(2 * x, 2 * y) if at % 8 == 7 else (x, y) for at, (x, y) in enumerate(batches)]
    return _training(_network(), batches)


@look_alike
def scale_found_in_the_first_steps() -> Training:
    """fp16 with a loss scale of 2**24 to begin with: the scaler skips some steps and goes on."""
    model = _network()

    def forward(batch: Pair) -> Tensor:
        return F.mse_loss(model(batch[0]).squeeze(-1).float(), batch[1])

    return Training(
        model=model, forward=forward, batches=_pairs(), optimizer=torch.optim.SGD(model.parameters(), lr=1e-2),
        autocast=HALF, scale=2.0**24,
    )  # fmt: skip


@look_alike
def half_precision_with_room() -> Training:
    """fp16 under a usual scale."""
    model = _network(4)
    batches = [(torch.randn(16, 8), torch.randint(0, 4, (16,))) for _ in range(COUNT)]

    def forward(batch: Pair) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        autocast=HALF, scale=2.0**10,
    )  # fmt: skip


@look_alike
def very_sure_logits() -> Training:
    """Scores of +-80 under a loss that can take them."""
    model = nn.Linear(8, 1)
    with torch.no_grad():
        model.weight.mul_(60)

    def forward(batch: Pair) -> Tensor:
        return F.binary_cross_entropy_with_logits(model(batch[0]).squeeze(-1), (batch[1] > 0).float())

    return Training(
        model=model, forward=forward, batches=_pairs(), optimizer=torch.optim.Adam(model.parameters(), lr=0.1)
    )


@look_alike
def forbidden_classes_at_minus_infinity() -> Training:
    """Scores of classes that cannot be are -inf before the softmax; the right one never is."""
    model = _network(6)
    allowed = torch.tensor([True, True, False, True, False, True])
    batches = [(torch.randn(16, 8), torch.tensor([0, 1, 3, 5])[torch.randint(0, 4, (16,))]) for _ in range(COUNT)]

    def forward(batch: Pair) -> Tensor:
        return F.cross_entropy(model(batch[0]).masked_fill(~allowed, -math.inf), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )


@look_alike
def root_with_room_below() -> Training:
    """Equal points under a root with an epsilon."""
    model = nn.Linear(8, 4)
    batches = [(x, torch.cat([x[:2], torch.randn(14, 8)])) for x, _ in _pairs()]

    def forward(batch: Pair) -> Tensor:
        return (((model(batch[0]) - model(batch[1])) ** 2).sum(1) + 1e-6).sqrt().sub(1).pow(2).mean()

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )


@look_alike
def missing_values_replaced() -> Training:
    """NaN in the table, and ``nan_to_num`` before the model."""
    model = _network()
    batches = _pairs()
    for x, _ in batches:
        x[::5, 3] = math.nan

    def forward(batch: Pair) -> Tensor:
        return F.mse_loss(model(batch[0].nan_to_num(0.0)).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=3e-3)
    )


@look_alike
def warm_up_from_zero() -> Training:
    """The first update has a rate of 0."""
    training = _training(_network(), _pairs(), rate=1e-2)
    optimizer = training.optimizer
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 20))
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    return training


@look_alike
def last_batch_is_small() -> Training:
    """Two rows are left for the end."""
    batches = _pairs()
    x, y = batches[-1]
    batches[-1] = (x[:2], y[:2])
    return _training(_network(), batches)


@look_alike
def heavy_tails_in_the_targets() -> Training:
    """Student's t with 3 degrees of freedom, under a robust loss."""
    model = _network()
    noise = torch.distributions.StudentT(3.0)
    batches = [(x, y + 0.5 * noise.sample(y.shape)) for x, y in _pairs()]

    def forward(batch: Pair) -> Tensor:
        return F.huber_loss(model(batch[0]).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=3e-3)
    )


@look_alike
def embedding_rows_that_never_occur() -> Training:
    """Most rows of a table get no gradient; a head is frozen on purpose."""
    table, head = nn.EmbeddingBag(500, 8), nn.Linear(8, 3)
    head.requires_grad_(requires_grad=False)
    model = nn.ModuleDict({"table": table, "head": head})
    batches = [(torch.randint(0, 20, (16, 3)), torch.randint(0, 3, (16,))) for _ in range(COUNT)]

    def forward(batch: Pair) -> Tensor:
        return F.cross_entropy(head(table(batch[0])), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.SGD(table.parameters(), lr=0.5)
    )


@look_alike
def loss_below_zero() -> Training:
    """A density above 1 has a negative log-likelihood."""
    model = nn.Linear(8, 1)
    batches = [(x, y + 1e-3 * torch.randn(16)) for x, y in _pairs(0.01)]

    def forward(batch: Pair) -> Tensor:
        return F.gaussian_nll_loss(model(batch[0]).squeeze(-1), batch[1], torch.full((16,), 1e-3))

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2)
    )
