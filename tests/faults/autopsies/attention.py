"""Attention and masks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import llama, words
from faults.autopsies.record import Step, a_step, fault

FULLY_MASKED = ("attention-fully-masked-row",)
SOFTMAX = ("aten._softmax", "aten.softmax")


@fault(cause=FULLY_MASKED, operator=SOFTMAX, module="attention", rows=3)
def attention_by_hand_without_any_key() -> Step:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            scores = self.q(x) @ self.k(x).transpose(1, 2) / 6**0.5
            scores = scores.masked_fill(~mask[:, None], float("-inf"))
            return torch.softmax(scores, dim=-1) @ self.v(x)  # planted here

    model = nn.ModuleDict({"attention": Attention(), "head": nn.Linear(6, 1)})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        attended = model["attention"](batch["x"], batch["mask"])
        return F.mse_loss(model["head"](attended)[:, 0, 0], batch["y"])

    mask = torch.ones(5, 4, dtype=torch.bool)
    mask[0, 2:] = False
    mask[3] = False
    return a_step(model, forward, {"x": torch.randn(5, 4, 6), "mask": mask, "y": torch.randn(5)})


@fault(cause=FULLY_MASKED, operator=SOFTMAX, module="attention", rows=1)
def torch_attention_with_all_keys_padded() -> Step:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor, padding: Tensor) -> Tensor:
            attended, _ = self.attention(x, x, x, key_padding_mask=padding)  # planted here
            return self.head(attended.mean(1))

    model = Block()
    padding = torch.zeros(4, 5, dtype=torch.bool)
    padding[1] = True
    padding[2, 3:] = True
    return a_step(
        model,
        lambda batch: F.cross_entropy(model(batch["x"], batch["padding"]), batch["y"]),
        {"x": torch.randn(4, 5, 8), "padding": padding, "y": torch.tensor([0, 2, 1, 0])},
    )


@fault(cause=FULLY_MASKED, operator=SOFTMAX, rows=2)
def additive_mask_without_any_key() -> Step:
    model = nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 8), nn.Linear(8, 40))

    def forward(batch: dict[str, Tensor]) -> Tensor:
        x = model[1](model[0](batch["ids"]))
        mask = torch.zeros(batch["keep"].shape).masked_fill_(batch["keep"] == 0, -torch.inf)
        weights = F.softmax(x @ x.transpose(-1, -2) + mask[:, None], dim=-1)  # planted here
        return F.cross_entropy(model[2](weights @ x).flatten(0, 1), batch["ids"].flatten())

    keep = torch.ones(4, 7, dtype=torch.long)
    keep[2] = 0
    return a_step(model, forward, {"ids": words(4), "keep": keep})


@fault(cause=FULLY_MASKED, operator=SOFTMAX, module="model.layers.0.self_attn", rows=0)
def llama_padded_on_the_left_under_a_mask_of_infinities() -> Step:
    model = llama(attn_implementation="eager")

    def forward(batch: dict[str, Tensor]) -> Tensor:
        length = batch["ids"].shape[1]
        allowed = torch.ones(length, length).tril().bool() & batch["keep"].bool()[:, None]
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)[:, None]
        return model(input_ids=batch["ids"], attention_mask=mask, labels=batch["ids"]).loss  # planted here

    keep = torch.ones(4, 7, dtype=torch.long)
    keep[0, :3] = 0
    return a_step(model, forward, {"ids": words(4), "keep": keep})


@fault(cause="loss-formula-singularity", operator="aten.mul")
def mask_of_zero_times_infinity() -> Step:
    model = nn.ModuleDict({"q": nn.Linear(6, 6), "k": nn.Linear(6, 6)})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        x = batch["x"]
        mask = (1.0 - batch["keep"]) * float("-inf")  # planted here
        scores = model["q"](x) @ model["k"](x).transpose(1, 2) + mask[:, None]
        return (scores.softmax(-1) @ x).pow(2).mean()

    keep = torch.ones(4, 5)
    keep[1, 4] = 0
    return a_step(model, forward, {"x": torch.randn(4, 5, 6), "keep": keep})


@fault(cause="loss-formula-singularity", operator="aten.mul", rows=2)
def forbidden_words_times_a_target_of_zero() -> Step:
    model = llama()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(input_ids=batch["ids"]).logits[:, -1]
        logs = logits.masked_fill(batch["forbidden"], -torch.inf).log_softmax(-1)
        return -(batch["target"] * logs).sum(-1).mean()  # planted here

    forbidden = torch.zeros(4, 40, dtype=torch.bool)
    forbidden[2, :5] = True
    target = torch.zeros(4, 40)
    target[:, 9] = 1.0
    return a_step(model, forward, {"ids": words(4), "forbidden": forbidden, "target": target})


@fault(cause=("loss-formula-singularity", "bad-data-row", "label-out-of-range"),
       operator=("aten.nll_loss_forward", "aten._log_softmax", "aten.masked_fill"), rows=3)  # fmt: skip
def label_among_the_forbidden_words() -> Step:
    model = llama()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(input_ids=batch["ids"]).logits[:, -1]
        logits = logits.masked_fill(batch["forbidden"], float("-inf"))
        return F.cross_entropy(logits, batch["next"])

    forbidden = torch.zeros(4, 40, dtype=torch.bool)
    forbidden[:, :5] = True
    return a_step(model, forward, {"ids": words(4), "forbidden": forbidden, "next": torch.tensor([9, 7, 8, 3])})


@fault(cause=(*FULLY_MASKED, "loss-formula-singularity"), operator=(*SOFTMAX, "aten.log"), rows=1)
def mask_by_a_logarithm() -> Step:
    model = nn.Linear(8, 24)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        q, k, v = model(batch["x"]).chunk(3, dim=-1)
        scores = q @ k.mT / 8**0.5 + batch["mask"].float().log()[:, None]
        return (scores.softmax(-1) @ v).pow(2).mean()

    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1] = mask[2, 3] = False
    return a_step(model, forward, {"x": torch.randn(4, 5, 8), "mask": mask})
