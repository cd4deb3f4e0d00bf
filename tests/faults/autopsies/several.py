"""More than one fault at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, cross_entropy, llama, own_loss, t5, words
from faults.autopsies.record import HALF, MATMUL, Built, Step, a_step, copy_of, fault


@fault(cause=("bad-data-row", "loss-formula-singularity"), operator=("aten.log", *MATMUL), module=("", "body.0"),
       rows=(1, 6))  # fmt: skip
def bad_row_and_bad_formula() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        predicted = model(batch["x"]).squeeze(-1)
        return F.mse_loss(predicted, torch.log(batch["y"]))

    x, y = torch.randn(8, 5), torch.rand(8) + 0.5
    x[1, 3] = math.nan
    y[6] = 0.0
    return a_step(model, forward, {"x": x, "y": y})


@fault(cause=("nan-weights", "poisoned-checkpoint", "bad-data-row"), operator=MATMUL, module=("body.0", "head"))
def bad_weight_and_bad_row() -> Built:
    model = Regressor(outputs=3)
    good = copy_of(model)
    with torch.no_grad():
        model.head.bias[1] = math.nan
    x = torch.randn(6, 5)
    x[4] = math.inf
    return a_step(model, cross_entropy(model), {"x": x, "y": torch.randint(0, 3, (6,))}), {"good_weights": good}


@fault(cause=("nan-weights", "poisoned-checkpoint", "fp16-overflow"), operator=(*MATMUL, "aten.mul"),
       module=("encoder.block.0.layer.1.DenseReluDense.wo", "decoder.block.1.layer.2.layer_norm"))  # fmt: skip
def overflow_and_bad_weight() -> Built:
    model = t5()
    dense = model.encoder.block[0].layer[1].DenseReluDense
    with torch.no_grad():
        dense.wi.weight.mul_(500)
        dense.wo.weight.mul_(2000)
        good = copy_of(model)
        model.decoder.block[1].layer[2].layer_norm.weight[2] = math.nan
    ids = words()
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids}, autocast=HALF), {"good_weights": good}


@fault(cause="loss-formula-singularity", operator="aten.div", forward_operator="aten.sqrt", phase="backward", rows=2)
def root_and_masks_that_are_harmless() -> Step:
    model = llama()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        out = model(input_ids=batch["ids"], output_hidden_states=True)
        logits = out.logits[:, -1].masked_fill(batch["forbidden"], -torch.inf)
        states = out.hidden_states[0] * batch["keep"][..., None]
        size = states.pow(2).sum((1, 2)).sqrt()  # planted here
        return F.cross_entropy(logits, batch["next"]) + 0.1 * size.mean()

    forbidden = torch.zeros(4, 40, dtype=torch.bool)
    forbidden[:, 20:] = True
    keep = torch.ones(4, 7)
    keep[2] = 0
    batch = {"ids": words(4), "forbidden": forbidden, "next": torch.tensor([1, 2, 3, 4]), "keep": keep}
    return a_step(model, forward, batch)


@fault(cause="loss-formula-singularity", operator=("aten.div", "aten.mul", "aten.pow"),
       forward_operator=("aten.sqrt", "aten.pow"), phase="backward", rows=(0, 5))  # fmt: skip
def two_roots() -> Step:
    model = nn.ModuleDict({"left": nn.Linear(5, 3, bias=False), "right": nn.Linear(5, 3, bias=False)})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        near = model["left"](batch["x"]).pow(2).sum(-1).sqrt()
        far = model["right"](batch["z"]).abs().sum(-1).pow(0.25)
        return near.mean() + far.mean()

    x, z = torch.randn(6, 5), torch.randn(6, 5)
    x[0] = 0
    z[5] = 0
    return a_step(model, forward, {"x": x, "z": z})
