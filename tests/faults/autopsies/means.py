"""Means over nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, Sequences, bert, words
from faults.autopsies.record import ROW, SINGULAR, Step, a_step, fault


@fault(cause=SINGULAR, operator="aten.div")
def mean_over_an_empty_mask() -> Step:
    model = Sequences(outputs=1)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        error = (model.lstm(batch["x"])[0].mean(-1) - batch["y"]).pow(2)
        mask = batch["mask"]
        return (error * mask).sum() / mask.sum()  # planted here

    batch = {"x": torch.randn(4, 6, 5), "y": torch.randn(4, 6), "mask": torch.zeros(4, 6)}
    return a_step(model, forward, batch)


@fault(cause=(*SINGULAR, "bad-data-row"), operator="aten.div", rows=3)
def pooling_of_a_row_without_words() -> Step:
    model = bert()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        hidden = model.bert(input_ids=batch["ids"], attention_mask=batch["mask"]).last_hidden_state
        weights = batch["mask"][..., None]
        pooled = (hidden * weights).sum(1) / weights.sum(1)  # planted here
        return F.cross_entropy(model.classifier(pooled), batch["label"])

    mask = torch.ones(5, 7, dtype=torch.long)
    mask[2, 3:] = 0
    mask[3] = 0
    batch = {"ids": words(5), "mask": mask, "label": torch.tensor([0, 1, 1, 0, 1])}
    return a_step(model, forward, batch)


@fault(cause=(*SINGULAR, "label-imbalance", "all-labels-masked"), operator="aten.div")
def share_of_positives_when_there_are_none() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        each = F.binary_cross_entropy_with_logits(model(batch["x"]).squeeze(-1), batch["y"], reduction="none")
        positive = batch["y"] == 1
        return each.mean() + each[positive].sum() / positive.sum()  # planted here

    batch = {"x": torch.randn(6, 5), "y": torch.zeros(6)}
    return a_step(model, forward, batch)


@fault(cause=(*SINGULAR, "all-labels-masked"), operator="aten.mean")
def mean_of_a_selection_of_nothing() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        error = F.smooth_l1_loss(model(batch["x"]).squeeze(-1), batch["y"], reduction="none")
        return error[batch["valid"]].mean()  # planted here

    batch = {"x": torch.randn(6, 5), "y": torch.randn(6), "valid": torch.zeros(6, dtype=torch.bool)}
    return a_step(model, forward, batch)


@fault(cause=("all-labels-masked", *SINGULAR), operator="aten.div")
def count_of_zero_as_a_python_number() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        error = (model(batch["x"]).squeeze(-1) - batch["y"]).pow(2)
        count = int(batch["mask"].sum())
        return (error * batch["mask"]).sum() / count  # planted here

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6), "mask": torch.zeros(6)})


@fault(cause="all-labels-masked", operator=("aten.div_", "aten.div"))
def in_place_division_by_a_count_of_zero() -> Step:
    model = bert(num_labels=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(input_ids=batch["ids"]).logits
        loss = F.cross_entropy(logits, batch["labels"], ignore_index=-1, reduction="sum")
        loss /= (batch["labels"] >= 0).sum()  # planted here
        return loss

    return a_step(model, forward, {"ids": words(4), "labels": torch.full((4,), -1)})


@fault(cause=(*SINGULAR, *ROW, "attention-fully-masked-row"), operator=("aten.div", "aten._softmax"),
       module=("", "encoder.layers.0.self_attn"), rows=4)  # fmt: skip
def encoder_of_torch_with_an_empty_row() -> Step:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.ModuleDict({"encoder": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        keep = (~batch["padding"]).float()
        out = model["encoder"](batch["x"], src_key_padding_mask=batch["padding"])
        pooled = torch.einsum("btd,bt->bd", out, keep) / keep.sum(1, keepdim=True)  # planted here
        return F.mse_loss(pooled.mean(-1), batch["y"])

    padding = torch.zeros(5, 4, dtype=torch.bool)
    padding[4] = True
    padding[1, 2:] = True
    return a_step(model, forward, {"x": torch.randn(5, 4, 8), "padding": padding, "y": torch.randn(5)})
