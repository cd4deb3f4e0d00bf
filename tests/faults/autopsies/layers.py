"""Layers and losses of torch itself, given what they do not forgive."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, llama, squared_error, words
from faults.autopsies.record import SINGULAR, Step, a_step, fault


@fault(cause=SINGULAR, operator=("aten.sum", "aten.mean", "aten.nll_loss_forward", "aten._log_softmax",
                                 "aten.masked_fill", "aten.mul"))  # fmt: skip
def label_smoothing_over_forbidden_words() -> Step:
    model = llama()
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(input_ids=batch["ids"]).logits[:, -1].masked_fill(batch["forbidden"], float("-inf"))
        return loss(logits, batch["next"])

    forbidden = torch.zeros(40, dtype=torch.bool)
    forbidden[30:] = True
    return a_step(model, forward, {"ids": words(4), "forbidden": forbidden, "next": torch.tensor([1, 2, 3, 4])})


@fault(cause=(*SINGULAR, "all-labels-masked"), operator="aten.nll_loss_forward", fix=False)
def class_weights_of_zero() -> Step:
    model = Regressor(outputs=3)
    weight = torch.tensor([0.0, 1.0, 1.0])

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["x"]), batch["y"], weight=weight)  # planted here

    return a_step(model, forward, {"x": torch.randn(5, 5), "y": torch.zeros(5, dtype=torch.long)})


@fault(cause=(*SINGULAR, "norm-eps"), operator="aten.native_layer_norm", module="1", rows=4)
def layer_norm_without_eps() -> Step:
    model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.LayerNorm(8, eps=0.0), nn.Linear(8, 1))
    x = torch.randn(6, 5)
    x[4] = 0
    return a_step(model, squared_error(model), {"x": x, "y": torch.randn(6)})


@fault(cause=(*SINGULAR, "norm-eps"), operator=("aten.rsqrt", "aten._fused_rms_norm", "aten.mul"), module="1", rows=2)
def root_mean_square_norm_without_eps() -> Step:
    model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.RMSNorm(8, eps=0.0), nn.Linear(8, 1))
    x = torch.randn(6, 5)
    x[2] = 0
    return a_step(model, squared_error(model), {"x": x, "y": torch.randn(6)})


@fault(cause=(*SINGULAR, "bad-init"), operator=("aten._weight_norm_interface", "aten.div", "aten._weight_norm"),
       module=("0.parametrizations.weight.0", "0.parametrizations.weight", "0"), fix=False)  # fmt: skip
def weight_norm_of_a_zero_row() -> Step:
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        model[0].weight[2] = 0
    torch.nn.utils.parametrizations.weight_norm(model[0])
    with torch.no_grad():
        model[0].parametrizations.weight.original0.fill_(1.0)
    return a_step(model, squared_error(model), {"x": torch.randn(6, 5), "y": torch.randn(6)})


@fault(cause=("bad-data-row", *SINGULAR), operator=("aten._ctc_loss", "aten.ctc_loss"), rows=2)
def too_short_an_input_for_ctc() -> Step:
    class Recogniser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 10, batch_first=True)
            self.head = nn.Linear(10, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0]).log_softmax(-1)

    model = Recogniser()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        scores = model(batch["x"]).transpose(0, 1)
        return F.ctc_loss(scores, batch["y"], batch["frames"], batch["letters"])  # planted here

    batch = {
        "x": torch.randn(4, 12, 6), "y": torch.randint(1, 5, (4, 5)),
        "frames": torch.tensor([12, 11, 3, 12]), "letters": torch.tensor([4, 3, 5, 5]),
    }  # fmt: skip
    return a_step(model, forward, batch)
