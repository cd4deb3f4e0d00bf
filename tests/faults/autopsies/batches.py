"""Guilty rows in batches of every form, and where a row cannot be run alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, TensorDataset
from transformers import BatchEncoding

from faults.autopsies.models import Regressor, squared_error, t5, words
from faults.autopsies.record import MATMUL, ROW, SINGULAR, Step, a_step, fault


@fault(cause=ROW, operator="aten.mul", rows=3)
def row_of_a_batch_encoding() -> Step:
    model = t5()

    def forward(batch: BatchEncoding) -> Tensor:
        each = model(input_ids=batch["input_ids"], labels=batch["labels"]).logits.mean((1, 2))
        return (each * batch["weight"]).mean()  # planted here

    ids = words(5)
    weight = torch.ones(5)
    weight[3] = math.nan
    return a_step(model, forward, BatchEncoding({"input_ids": ids, "labels": ids, "weight": weight}))


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", phase="backward", rows=(0, 6))
def row_of_a_named_tuple() -> Step:
    class Pairs(NamedTuple):
        left: Tensor
        right: Tensor

    model = nn.Linear(5, 3, bias=False)

    def forward(batch: Pairs) -> Tensor:
        return (model(batch.left) - model(batch.right)).square().sum(-1).sqrt().mean()  # planted here

    left = torch.randn(7, 5)
    right = torch.randn(7, 5)
    right[[0, 6]] = left[[0, 6]]
    return a_step(model, forward, Pairs(left, right))


@fault(cause=ROW, operator=("aten.copy_", "aten.pad_sequence"), module=("", "lstm"), rows=4)
def sample_of_a_list() -> Step:
    model = nn.ModuleDict({"lstm": nn.LSTM(4, 8, batch_first=True), "head": nn.Linear(8, 1)})

    def forward(batch: list[dict[str, Tensor]]) -> Tensor:
        lengths = torch.tensor([len(sample["x"]) for sample in batch])
        padded = pad_sequence([sample["x"] for sample in batch], batch_first=True)
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        last = model["lstm"](packed)[1][0][-1]
        return F.mse_loss(model["head"](last).squeeze(-1), torch.stack([sample["y"] for sample in batch]))

    batch = [{"x": torch.randn(3 + at, 4), "y": torch.randn(())} for at in range(6)]
    batch[4]["x"][2, 1] = math.nan
    return a_step(model, forward, batch)


@fault(cause=ROW, operator=("aten.clone", "aten.mkldnn_rnn_layer", "aten.lstm", *MATMUL), module="lstm", rows=2)
def sequence_along_the_second_dimension() -> Step:
    model = nn.ModuleDict({"lstm": nn.LSTM(4, 8), "head": nn.Linear(8, 3)})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model["head"](model["lstm"](batch["x"])[0][-1]), batch["y"])

    x = torch.randn(9, 6, 4)
    x[5, 2, 0] = math.nan
    batch = {"x": x, "y": torch.randint(0, 3, (6,)), "speaker": torch.arange(6)}
    return a_step(model, forward, batch)


@fault(cause=ROW, operator=MATMUL, module="0", rows=5)
def row_among_others_of_a_batch_norm() -> Step:
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(8, 5)
    x[5, 0] = math.nan
    return a_step(model, squared_error(model), {"x": x, "y": torch.randn(8)})


@fault(cause=(*SINGULAR, *ROW), operator="aten.log", rows=2)
def row_of_a_loss_that_needs_many() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        predicted = model(batch["x"]).squeeze(-1)
        standard = (predicted - predicted.mean()) / (predicted.std() + 1e-3)
        return F.mse_loss(standard, torch.log(batch["y"]))  # planted here

    y = torch.rand(8) + 0.5
    y[2] = 0.0
    return a_step(model, forward, {"x": torch.randn(8, 5), "y": y})


@fault(cause=(*SINGULAR, *ROW), operator="aten.div", rows=3)
def contrast_with_an_empty_embedding() -> Step:
    model = nn.Linear(5, 4, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        left, right = model(batch["left"]), model(batch["right"])
        left = left / torch.linalg.norm(left, dim=-1, keepdim=True)  # planted here
        logits = left @ F.normalize(right, dim=-1).T / 0.07
        return F.cross_entropy(logits, torch.arange(len(logits)))

    left = torch.randn(6, 5)
    left[3] = 0
    return a_step(model, forward, {"left": left, "right": torch.randn(6, 5)})


@fault(cause=ROW, operator=("aten.convolution", "aten.mkldnn_convolution"), module="0", rows=1)
def pixel_of_a_nested_batch() -> Step:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))

    def forward(batch: dict[str, dict[str, Tensor]]) -> Tensor:
        return F.cross_entropy(model(batch["inputs"]["image"]), batch["targets"]["class"])

    images = torch.randn(6, 3, 8, 8)
    images[1, 2, 7, 7] = -math.inf
    return a_step(model, forward, {"inputs": {"image": images}, "targets": {"class": torch.randint(0, 2, (6,))}})


@fault(cause=SINGULAR, operator=("aten.reciprocal", "aten.div"), rows=3)
def samples_as_a_list_of_tensors() -> Step:
    model = Regressor(outputs=2)

    def forward(batch: dict[str, Any]) -> Tensor:
        each = [model(x).mean(0) for x in batch["clouds"]]
        centre = torch.stack(each) - torch.stack(batch["centres"])
        return (1 / centre.pow(2).sum(-1)).log().mean() + centre.pow(2).mean()  # planted here

    clouds = [torch.randn(3 + at, 5) for at in range(5)]
    centres = [torch.randn(2) for _ in range(5)]
    centres[3] = model(clouds[3]).mean(0).detach()
    return a_step(model, forward, {"clouds": clouds, "centres": centres, "kind": torch.zeros(5)})


@fault(cause=(*SINGULAR, *ROW), operator="aten.div", rows=1)
def batch_of_a_loader() -> Step:
    model = nn.Linear(5, 5, bias=False)

    def forward(batch: list[Tensor]) -> Tensor:
        left, right = model(batch[0]), batch[1]
        cosine = (left * right).sum(1) / (left.norm(dim=1) * right.norm(dim=1))  # planted here
        return 1 - cosine.mean()

    left = torch.randn(6, 5)
    left[1] = 0
    (batch,) = DataLoader(TensorDataset(left, torch.randn(6, 5)), batch_size=6)
    return a_step(model, forward, batch)
