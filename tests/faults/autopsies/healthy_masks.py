"""Healthy steps that are full of infinities put there on purpose."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, Sequences, llama, words
from faults.autopsies.record import Step, a_step, look_alike


class Attention(nn.Module):
    """One head, with a mask of infinities."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ self.v(x)


@look_alike
def causal_and_padding_masks_of_infinities() -> Step:
    model = Attention()
    keep = torch.ones(4, 5, dtype=torch.bool)
    keep[1, 3:] = keep[2, 1:] = False
    allowed = torch.ones(5, 5, dtype=torch.bool).tril() & keep[:, None]
    return a_step(
        model,
        lambda batch: model(batch["x"], batch["allowed"]).pow(2).mean(),
        {"x": torch.randn(4, 5, 6), "allowed": allowed},
    )


@look_alike
def row_with_a_single_key() -> Step:
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    padding = torch.ones(4, 5, dtype=torch.bool)
    padding[:, 0] = False

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return model(batch["x"], batch["x"], batch["x"], key_padding_mask=batch["padding"])[0].pow(2).mean()

    return a_step(model, forward, {"x": torch.randn(4, 5, 8), "padding": padding})


@look_alike
def sdpa_with_a_row_that_may_see_nothing() -> Step:
    model = nn.Linear(8, 24)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        q, k, v = model(batch["x"]).chunk(3, -1)
        out = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=batch["mask"][:, None])
        return out.squeeze(1)[batch["real"]].pow(2).mean()

    mask = torch.ones(4, 5, 5, dtype=torch.bool)
    mask[2] = False
    return a_step(model, forward, {"x": torch.randn(4, 5, 8), "mask": mask, "real": torch.arange(4) != 2})


@look_alike
def infinities_that_maximum_and_topk_throw_away() -> Step:
    model = Regressor(outputs=6)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        scores = model(batch["x"]).masked_fill(batch["gone"], -torch.inf)
        best, _ = scores.topk(2, dim=-1)
        least = scores.masked_fill(batch["gone"], torch.inf).amin(-1)
        return best.sum() - scores.max(-1).values.mean() - least.mean()

    gone = torch.zeros(5, 6, dtype=torch.bool)
    gone[:, 3:] = True
    return a_step(model, forward, {"x": torch.randn(5, 5), "gone": gone})


@look_alike
def forbidden_words_that_are_never_the_label() -> Step:
    model = llama()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(input_ids=batch["ids"]).logits.masked_fill(batch["forbidden"], -torch.inf)
        return F.cross_entropy(logits.flatten(0, 1), batch["next"].flatten())

    forbidden = torch.zeros(40, dtype=torch.bool)
    forbidden[20:] = True
    return a_step(model, forward, {"ids": words(), "forbidden": forbidden, "next": words().clamp_max(19)})


@look_alike
def inverse_distance_of_infinity() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        nearness = torch.exp(-batch["distance"])
        return (model(batch["x"]) * nearness).pow(2).mean() + (1 / (1 + batch["distance"])).mean()

    distance = torch.rand(5, 3)
    distance[2, 1] = distance[4] = math.inf
    return a_step(model, forward, {"x": torch.randn(5, 5), "distance": distance})


@look_alike
def running_maximum_that_starts_at_minus_infinity() -> Step:
    model = Sequences(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        states = model.lstm(batch["x"])[0]
        best = torch.full((states.shape[0],), -torch.inf)
        total = torch.zeros(states.shape[0])
        for at in range(states.shape[1]):
            score = states[:, at].sum(-1)
            new = torch.maximum(best, score)
            total = total * torch.exp(best - new) + torch.exp(score - new)
            best = new
        return (best + total.log() - batch["y"]).pow(2).mean()

    return a_step(model, forward, {"x": torch.randn(4, 6, 5), "y": torch.randn(4)})


@look_alike
def infinite_bounds() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        predicted = model(batch["x"]).squeeze(-1)
        return torch.minimum(torch.maximum(predicted, batch["least"]), batch["most"]).pow(2).mean()

    batch = {"x": torch.randn(4, 5), "least": torch.full((4,), -math.inf), "most": torch.tensor([1.0, math.inf, 2, 1])}
    return a_step(model, forward, batch)


@look_alike
def nan_of_a_masked_value_replaced() -> Step:
    model = Sequences()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(torch.nan_to_num(batch["x"], nan=0.0, posinf=0.0)), batch["y"])

    x = torch.randn(5, 4, 5)
    x[2, 1] = math.nan
    x[3, 0, 0] = math.inf
    return a_step(model, forward, {"x": x, "y": torch.randint(0, 3, (5,))})


@look_alike
def missing_labels_left_out() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        known = ~batch["y"].isnan()
        return F.mse_loss(model(batch["x"]).squeeze(-1)[known], batch["y"][known])

    y = torch.randn(6)
    y[[0, 4]] = math.nan
    return a_step(model, forward, {"x": torch.randn(6, 5), "y": y})


@look_alike
def empty_mask_that_is_guarded() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        error = (model(batch["x"]).squeeze(-1) - batch["y"]).pow(2)
        return error.mean() + (error * batch["mask"]).sum() / batch["mask"].sum().clamp_min(1)

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6), "mask": torch.zeros(6)})


@look_alike
def ctc_with_zeroed_infinities() -> Step:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        scores = model(batch["x"]).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(scores, batch["y"], batch["frames"], batch["letters"], zero_infinity=True)

    batch = {
        "x": torch.randn(3, 8, 5), "y": torch.randint(1, 4, (3, 4)), "frames": torch.tensor([8, 2, 7]),
        "letters": torch.tensor([3, 4, 2]),
    }  # fmt: skip
    return a_step(model, forward, batch)
