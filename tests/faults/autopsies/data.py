"""Rows of a batch that nothing can be learned from."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from faults.autopsies.models import (
    Regressor,
    Sequences,
    bert,
    cross_entropy,
    llama,
    llava,
    own_loss,
    pictures_with_words,
    squared_error,
    t5,
    vit,
    words,
)
from faults.autopsies.record import MATMUL, ROW, Step, a_step, fault


@fault(cause=ROW, operator=(*MATMUL, "aten.lstm", "aten.mkldnn_rnn_layer", "aten.transpose", "aten.clone"),
       module="lstm", rows=3)  # fmt: skip
def nan_in_one_sequence() -> Step:
    model = Sequences()
    x = torch.randn(6, 4, 5)
    x[3, 2, 1] = math.nan
    return a_step(model, cross_entropy(model), {"x": x, "y": torch.randint(0, 3, (6,))})


@fault(cause=ROW, operator=("aten.convolution", "aten.mkldnn_convolution"),
       module="vit.embeddings.patch_embeddings.projection", rows=(1, 5))  # fmt: skip
def nan_in_two_pictures() -> Step:
    model = vit()
    images = torch.randn(6, 3, 8, 8)
    images[1, 0, 3, 3] = images[5] = math.nan
    return a_step(model, own_loss(model), {"pixel_values": images, "labels": torch.randint(0, 3, (6,))})


@fault(cause=ROW, operator=("aten.convolution", "aten.mkldnn_convolution"),
       module=("model.vision_tower.embeddings.patch_embedding",
               "model.vision_tower.vision_model.embeddings.patch_embedding"),
       rows=2)  # fmt: skip
def nan_in_a_picture_of_llava() -> Step:
    model = llava()
    batch = pictures_with_words()
    batch["pixel_values"][2, 1] = math.nan
    return a_step(model, own_loss(model), batch)


@fault(cause=ROW, operator=("aten.mse_loss", "aten.sub"), rows=6)
def infinity_in_one_label() -> Step:
    model = Regressor()

    def forward(batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return torch.nn.MSELoss()(model(x).squeeze(-1), y)  # planted here

    y = torch.randn(8)
    y[6] = math.inf
    return a_step(model, forward, (torch.randn(8, 5), y))


@fault(cause=ROW, operator=("aten.mse_loss", "aten.sub"), rows=0)
def missing_value_in_one_label() -> Step:
    model = bert(num_labels=2, problem_type="regression")
    labels = torch.randn(5, 2)
    labels[0, 1] = math.nan
    return a_step(model, own_loss(model), {"input_ids": words(5), "labels": labels})


@fault(cause=ROW, operator="aten.mul", rows=2)
def infinite_weight_of_one_sample() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        each = F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")
        return (each * batch["weight"]).mean()  # planted here

    weight = torch.ones(6)
    weight[2] = math.inf
    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randint(0, 3, (6,)), "weight": weight})


@fault(cause=ROW, operator=(*MATMUL, "aten.lstm", "aten.mkldnn_rnn_layer", "aten.transpose", "aten.clone"),
       module="lstm", rows=4)  # fmt: skip
def silence_in_a_logarithmic_spectrum() -> Step:
    model = Sequences()
    spectrum = torch.rand(5, 4, 5)
    spectrum[4, 3] = 0
    return a_step(
        model,
        lambda batch: F.cross_entropy(model(batch["frames"]), batch["y"]),
        {"frames": spectrum.log(), "y": torch.randint(0, 3, (5,))},
    )


@fault(cause=(*ROW, "unscaled-input"), operator="aten.pow", rows=1)
def absurdly_large_row() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        size = batch["x"].pow(2).sum(-1)  # planted here
        return (model(batch["x"]).squeeze(-1) - size.log1p()).pow(2).mean()

    x = torch.randn(6, 5)
    x[1, 2] = 3e25
    return a_step(model, forward, {"x": x})


@fault(cause="all-labels-masked", operator="aten.nll_loss_forward")
def all_labels_of_t5_masked() -> Step:
    model = t5()
    ids = words()
    return a_step(
        model,
        lambda batch: model(**batch).loss,  # planted here
        {"input_ids": ids, "labels": torch.full_like(ids, -100), "decoder_input_ids": ids},
    )


@fault(cause="all-labels-masked", operator=("aten.nll_loss_forward", "aten.div"))
def all_labels_of_llava_masked() -> Step:
    model = llava()
    batch = pictures_with_words()
    batch["labels"].fill_(-100)
    return a_step(model, own_loss(model), batch)


@fault(cause=("all-labels-masked", "loss-formula-singularity"), operator="aten.div")
def labels_masked_by_hand() -> Step:
    model = Regressor(outputs=4)
    loss = torch.nn.CrossEntropyLoss(ignore_index=0, reduction="none")

    def forward(batch: dict[str, Tensor]) -> Tensor:
        each = loss(model(batch["x"]), batch["labels"])
        return each.sum() / (batch["labels"] != 0).sum()  # planted here

    return a_step(model, forward, {"x": torch.randn(6, 5), "labels": torch.zeros(6, dtype=torch.long)})


@fault(cause=("toxic-batch", "bad-data-row"), rows=4,
       materials={"trigger": "loss-spike", "spike_limit": {"loss": 50.0, "grad_norm": 100.0}})  # fmt: skip
def toxic_row_that_stays_finite() -> Step:
    model = Regressor()
    x, y = torch.randn(6, 5), torch.randn(6)
    y[4] = 3e4
    return a_step(model, squared_error(model), {"x": x, "y": y})


@fault(cause=("toxic-batch", "bad-data-row"), rows=(2, 7),
       materials={"trigger": "gradient-spike", "spike_limit": {"loss": 40.0, "grad_norm": 60.0}})  # fmt: skip
def toxic_label_of_a_language_model() -> Step:
    model = bert(num_labels=1)
    labels = torch.randn(8)
    labels[[2, 7]] = torch.tensor([-900.0, 1200.0])
    return a_step(model, own_loss(model), {"input_ids": words(8), "labels": labels})


@fault(cause="all-labels-masked", operator="aten.nll_loss_forward")
def first_word_is_the_only_label() -> Step:
    model = llama()
    ids = words()
    labels = torch.full_like(ids, -100)
    labels[:, 0] = ids[:, 0]
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": labels})


@fault(cause="all-labels-masked", operator="aten.nll_loss2d_forward")
def labels_with_an_ignore_value_of_their_own() -> Step:
    model = torch.nn.Conv2d(3, 4, 1)
    loss = torch.nn.CrossEntropyLoss(ignore_index=255)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return loss(model(batch["image"]), batch["target"])  # planted here

    return a_step(model, forward, {"image": torch.randn(2, 3, 4, 4), "target": torch.full((2, 4, 4), 255)})
