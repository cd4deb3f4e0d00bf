"""The step before did it: what an update left in the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, Sequences, bert, llama, words
from faults.autopsies.record import MATMUL, Planted, a_step, copy_of, fault

TOO_HIGH = ("lr-too-high",)


def _take(optimizer: torch.optim.Optimizer, loss: Tensor, rate: float | None = None) -> None:
    """One real step, at this learning rate if one is given."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] if rate is None else rate
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@fault
def one_huge_step_of_adam() -> Planted:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    for _ in range(3):
        _take(optimizer, forward({"x": torch.randn(6, 5), "y": torch.randn(6)}))
    good = copy_of(model)
    _take(optimizer, forward({"x": torch.randn(6, 5), "y": torch.randn(6)}), rate=1e8)
    return Planted(
        step=a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)}), cause=TOO_HIGH,
        operator=("aten.mse_loss", *MATMUL), module=("", "2", "4"),
        materials={"good_weights": good, "optimizer": optimizer},
    )  # fmt: skip


@fault
def one_huge_step_of_sgd_with_momentum() -> Planted:
    model = bert(num_labels=1, hidden_act="relu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return model(**batch).loss

    def batch() -> dict[str, Tensor]:
        return {"input_ids": words(), "labels": torch.randn(6)}

    _take(optimizer, forward(batch()))
    good = copy_of(model)
    _take(optimizer, forward(batch()), rate=1e25)
    return Planted(
        step=a_step(model, forward, batch()), cause=TOO_HIGH, operator=(*MATMUL, "aten.native_layer_norm"),
        module=("bert.embeddings.LayerNorm", "bert.encoder.layer.0.attention.self.query",
                "bert.encoder.layer.0.attention.self"),
        materials={"good_weights": good, "optimizer": optimizer},
    )  # fmt: skip


@fault
def spike_after_a_huge_step() -> Planted:
    model = Sequences(outputs=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(6, 4, 5), "y": torch.randn(6)}

    for _ in range(2):
        _take(optimizer, forward(batch()))
    good = copy_of(model)
    _take(optimizer, forward(batch()), rate=50.0)
    return Planted(
        step=a_step(model, forward, batch()), cause=TOO_HIGH,
        materials={
            "good_weights": good, "optimizer": optimizer, "trigger": "loss-spike",
            "spike_limit": {"loss": 20.0, "grad_norm": 50.0},
        },
    )  # fmt: skip


@fault
def eps_of_adam_in_fp16() -> Planted:
    model = Regressor(outputs=3).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["x"]), batch["y"])

    def batch() -> dict[str, Tensor]:
        x = torch.randn(6, 5).half()
        x[:, 2] = 0
        return {"x": x, "y": torch.randint(0, 3, (6,))}

    good = copy_of(model)
    _take(optimizer, forward(batch()))
    return Planted(
        step=a_step(model, forward, batch()), cause=("adam-eps-underflow",), operator=MATMUL,
        module=("body.0",), materials={"good_weights": good, "optimizer": optimizer},
    )  # fmt: skip


@fault
def update_beyond_fp16() -> Planted:
    model = nn.Linear(5, 1).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    def batch(size: float) -> dict[str, Tensor]:
        return {"x": torch.randn(6, 5).half(), "y": (size * torch.randn(6)).half()}

    good = copy_of(model)
    _take(optimizer, forward(batch(7000.0)))
    return Planted(
        step=a_step(model, forward, batch(1.0)), cause=("pure-fp16-weights", "lr-too-high", "nan-weights"),
        operator=MATMUL, materials={"good_weights": good, "optimizer": optimizer},
    )  # fmt: skip


@fault
def huge_step_known_from_the_optimizer_alone() -> Planted:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(6, 5), "y": torch.randn(6)}

    _take(optimizer, forward(batch()))
    _take(optimizer, forward(batch()), rate=1e9)
    return Planted(
        step=a_step(model, forward, batch()), cause=("lr-too-high",), operator=("aten.mse_loss", *MATMUL),
        module=("", "0", "2", "4"), materials={"optimizer": optimizer},
    )  # fmt: skip


@fault
def huge_step_of_an_optimizer_that_cannot_be_undone() -> Planted:
    model = llama()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    ids = words()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return model(**batch).loss

    good = copy_of(model)
    _take(optimizer, forward({"input_ids": ids, "labels": ids}), rate=1e16)
    return Planted(
        step=a_step(model, forward, {"input_ids": ids, "labels": ids}), cause=("lr-too-high",),
        operator=(*MATMUL, "aten.mul", "aten.pow", "aten._scaled_dot_product_flash_attention_for_cpu"),
        module=("model.layers.0.mlp", "model.layers.0.mlp.down_proj", "model.layers.0.input_layernorm",
                "model.layers.0.self_attn", "model.layers.1.input_layernorm",
                "model.layers.0.post_attention_layernorm"),
        materials={"good_weights": good, "optimizer": optimizer},
    )  # fmt: skip


@fault
def plain_sgd_that_diverged() -> Planted:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    batch = {"x": torch.randn(6, 5), "y": torch.randn(6)}
    good = copy_of(model)
    while bool(forward(batch).isfinite()):
        _take(optimizer, forward(batch))
    return Planted(
        step=a_step(model, forward, batch), cause=TOO_HIGH, operator=("aten.mse_loss", *MATMUL), module=("", "0", "2"),
        materials={"good_weights": good, "optimizer": optimizer},
    )  # fmt: skip


@fault
def update_beyond_fp32() -> Planted:
    model = Regressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    def batch(size: float = 1.0) -> dict[str, Tensor]:
        return {"x": torch.randn(6, 5), "y": size * torch.randn(6)}

    _take(optimizer, forward(batch()))
    good = copy_of(model)
    _take(optimizer, forward(batch(1e6)), rate=1e36)
    return Planted(
        step=a_step(model, forward, batch()), cause=(*TOO_HIGH, "nan-weights"), operator=MATMUL,
        module=("body.0", "head"), materials={"good_weights": good, "optimizer": optimizer},
    )  # fmt: skip
