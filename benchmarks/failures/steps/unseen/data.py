"""The batch is bad."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.failures.steps.record import Training, fault

COUNT, BAD = 10, 6
"""Batches, and the one that is bad."""

Pair = tuple[Tensor, Tensor]


def _table(rows: int = 16, columns: int = 8) -> list[Pair]:
    """Batches of a task that can be learned."""
    weights = torch.randn(columns)
    inputs = [torch.randn(rows, columns) for _ in range(COUNT)]
    return [(x, (x @ weights).tanh()) for x in inputs]


def _network(columns: int = 8, outputs: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(columns, 32), nn.GELU(), nn.Linear(32, outputs))


def _regression(batches: list[Pair]) -> Training:
    model = _network(batches[0][0].shape[1])

    def forward(batch: Pair) -> Tensor:
        return F.mse_loss(model(batch[0]).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3)
    )


@fault("bad-data-row")
def one_pixel_is_nan() -> Training:
    """A dead sensor in one image."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 4),
    )  # fmt: skip
    batches = [{"image": torch.rand(8, 3, 12, 12), "label": torch.randint(0, 4, (8,))} for _ in range(COUNT)]
    batches[BAD]["image"][5, 1, 3, 7] = math.nan

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["image"]), batch["label"])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.SGD(model.parameters(), lr=0.05)
    )


@fault("bad-data-row")
def one_target_is_infinite() -> Training:
    """Somebody took a logarithm of 0 when the file was written."""
    batches = _table()
    batches[BAD][1][3] = -math.inf
    return _regression(batches)


@fault("bad-data-row")
def missing_values_in_some_rows() -> Training:
    """A table in which missing is NaN."""
    batches = _table()
    batches[BAD][0][[2, 9, 13], 4] = math.nan
    return _regression(batches)


@fault("toxic-batch", "bad-data-row", "exploding-gradient", "unscaled-input")
def one_row_in_other_units() -> Training:
    """Millimetres for metres, squared: finite, and a thousand times above all gradients before it."""
    torch.manual_seed(1)
    weights = torch.randn(8)
    inputs = [torch.randn(16, 8) for _ in range(48)]
    batches = [(x, x @ weights) for x in inputs]
    batches[40][0][7] *= 2000
    batches[40][1][7] *= -2000
    model = nn.Linear(8, 1)

    def forward(batch: Pair) -> Tensor:
        return F.mse_loss(model(batch[0]).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2)
    )


@fault("label-out-of-range")
def label_beyond_the_last_class() -> Training:
    """Classes are counted from 1 in one file."""
    model = _network(outputs=5)
    batches = [(torch.randn(12, 8), torch.randint(0, 5, (12,))) for _ in range(COUNT)]
    batches[BAD][1][4] = 5

    def forward(batch: Pair) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )


def _language(vocabulary: int = 30, length: int = 9) -> tuple[Training, list[dict[str, Tensor]]]:
    model = nn.Sequential(nn.Embedding(vocabulary, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, vocabulary))
    batches = []
    for _ in range(COUNT):
        ids = torch.randint(0, vocabulary, (6, length))
        labels = ids.roll(-1, dims=1)
        labels[:, -1] = -100
        batches.append({"ids": ids, "labels": labels})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["ids"])
        return F.cross_entropy(logits.reshape(-1, vocabulary), batch["labels"].reshape(-1), ignore_index=-100)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Training(model=model, forward=forward, batches=batches, optimizer=optimizer), batches


@fault("all-labels-masked")
def every_label_ignored() -> Training:
    """A batch of prompts whose answers were cut off."""
    training, batches = _language()
    batches[BAD]["labels"][:] = -100
    return training


@fault("token-id-out-of-range", "tokenizer-mismatch")
def token_beyond_the_vocabulary() -> Training:
    """A token that was added to the tokenizer and not to the model."""
    training, batches = _language()
    batches[BAD]["ids"][1, 2] = 30
    return training


@fault("empty-batch", "all-labels-masked")
def batch_without_rows() -> Training:
    """A filter let nothing through."""
    batches = _table()
    x, y = batches[BAD]
    batches[BAD] = (x[:0], y[:0])
    return _regression(batches)


@fault("all-labels-masked", "loss-formula-singularity", "empty-batch")
def weights_of_all_samples_are_zero() -> Training:
    """A weighted mean over samples that nobody wants."""
    model = _network()
    batches = [{"x": x, "y": y, "weight": torch.rand(16)} for x, y in _table()]
    batches[BAD]["weight"] = torch.zeros(16)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        each = (model(batch["x"]).squeeze(-1) - batch["y"]) ** 2
        return (each * batch["weight"]).sum() / batch["weight"].sum()

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )


@fault("constant-feature", "loss-formula-singularity", "norm-eps", "bad-data-row")
def column_constant_within_a_batch() -> Training:
    """Each batch is standardized by itself; in one a column never changes."""
    model = _network()
    batches = _table()
    batches[BAD][0][:, 2] = 0.25

    def forward(batch: Pair) -> Tensor:
        x = (batch[0] - batch[0].mean(0)) / batch[0].std(0)
        return F.mse_loss(model(x).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )


@fault("bad-data-row", "loss-formula-singularity")
def negative_count_under_a_logarithm() -> Training:
    """Counts go through log1p; one row holds -3, which should have been "missing"."""
    model = _network()
    counts = [torch.randint(0, 50, (16, 8)).float() for _ in range(COUNT)]
    batches = [(x, x.mean(1) / 25 - 1) for x in counts]
    batches[BAD][0][11, 5] = -3.0

    def forward(batch: Pair) -> Tensor:
        return F.mse_loss(model(torch.log1p(batch[0])).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3)
    )
