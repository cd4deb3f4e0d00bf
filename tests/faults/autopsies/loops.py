"""What real training loops do to batches, gradients and buffers, with a fault underneath."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, bert, words
from faults.autopsies.record import ROW, SINGULAR, Step, a_step, fault


@fault(cause=(*SINGULAR, *ROW), operator="aten.div", rows=1)
def labels_popped_from_the_batch() -> Step:
    model = bert()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        labels, weights = batch.pop("labels"), batch.pop("weights")
        each = F.cross_entropy(model(**batch).logits, labels, reduction="none")
        return (each / weights).mean()  # planted here

    weights = torch.ones(5)
    weights[1] = 0
    batch = {"input_ids": words(5), "labels": torch.tensor([0, 1, 1, 0, 1]), "weights": weights}
    return a_step(model, forward, batch)


@fault(cause=(*SINGULAR, *ROW, "constant-feature"), operator="aten.div_", rows=4)
def batch_standardised_in_place() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        x = batch["x"]
        x.sub_(x.mean(-1, keepdim=True))
        x.div_(x.abs().amax(-1, keepdim=True))  # planted here
        return F.mse_loss(model(x).squeeze(-1), batch["y"])

    x = torch.randn(6, 5)
    x[4] = 1.5
    return a_step(model, forward, {"x": x, "y": torch.randn(6)})


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", phase="backward", rows=3)
def embedding_with_sparse_gradients() -> Step:
    model = nn.ModuleDict({"table": nn.Embedding(20, 6, sparse=True), "head": nn.Linear(6, 1)})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        vectors = model["table"](batch["ids"]).sum(1) * batch["keep"][:, None]
        return (model["head"](vectors).squeeze(-1) + vectors.pow(2).sum(-1).sqrt() - batch["y"]).abs().mean()

    keep = torch.ones(5)
    keep[3] = 0
    return a_step(model, forward, {"ids": torch.randint(0, 20, (5, 3)), "keep": keep, "y": torch.randn(5)})


@fault(cause=(*SINGULAR, *ROW), operator="aten.div", rows=2)
def score_written_into_a_buffer() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        scores = torch.zeros(len(batch["x"]))
        for at, (x, y) in enumerate(zip(batch["x"], batch["y"], strict=True)):
            scores[at] = model(x).squeeze() / y  # planted here
        return scores.tanh().pow(2).mean() + scores.abs().mean()

    y = torch.rand(6) + 0.5
    y[2] = 0
    return a_step(model, forward, {"x": torch.randn(6, 5), "y": y})


@fault(cause=SINGULAR, operator="aten.div", module=("", "body", "body.1", "head"), phase="backward", rows=5)
def clipping_a_gradient_of_zero_in_a_hook() -> Step:
    model = Regressor(outputs=3)

    def unit(gradient: Tensor) -> Tensor:
        return gradient / gradient.norm(dim=-1, keepdim=True)  # planted here

    def forward(batch: dict[str, Tensor]) -> Tensor:
        features = model.body(batch["x"])
        features.register_hook(unit)
        each = F.cross_entropy(model.head(features), batch["y"], reduction="none")
        return (each * batch["weight"]).sum()

    weight = torch.ones(6)
    weight[5] = 0
    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randint(0, 3, (6,)), "weight": weight})
