"""The step before did it: what an update left in the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faults.autopsies.models import Regressor, Sequences, bert, cross_entropy, llama, own_loss, squared_error, words
from faults.autopsies.record import MATMUL, Built, a_step, copy_of, fault

TOO_HIGH = ("lr-too-high",)


def _take(optimizer: torch.optim.Optimizer, loss: Tensor, rate: float | None = None) -> None:
    """One real step, at this learning rate if one is given."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] if rate is None else rate
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@fault(cause=TOO_HIGH, operator=("aten.mse_loss", *MATMUL), module=("", "2", "4"))
def one_huge_step_of_adam() -> Built:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    forward = squared_error(model)

    for _ in range(3):
        _take(optimizer, forward({"x": torch.randn(6, 5), "y": torch.randn(6)}))
    good = copy_of(model)
    _take(optimizer, forward({"x": torch.randn(6, 5), "y": torch.randn(6)}), rate=1e8)
    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)}), {
        "good_weights": good,
        "optimizer": optimizer,
    }


@fault(cause=TOO_HIGH, operator=(*MATMUL, "aten.native_layer_norm"),
       module=("bert.embeddings.LayerNorm", "bert.encoder.layer.0.attention.self.query",
               "bert.encoder.layer.0.attention.self"))  # fmt: skip
def one_huge_step_of_sgd_with_momentum() -> Built:
    model = bert(num_labels=1, hidden_act="relu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    forward = own_loss(model)

    def batch() -> dict[str, Tensor]:
        return {"input_ids": words(), "labels": torch.randn(6)}

    _take(optimizer, forward(batch()))
    good = copy_of(model)
    _take(optimizer, forward(batch()), rate=1e25)
    return a_step(model, forward, batch()), {"good_weights": good, "optimizer": optimizer}


@fault(cause=TOO_HIGH)
def spike_after_a_huge_step() -> Built:
    model = Sequences(outputs=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    forward = squared_error(model)

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(6, 4, 5), "y": torch.randn(6)}

    for _ in range(2):
        _take(optimizer, forward(batch()))
    good = copy_of(model)
    _take(optimizer, forward(batch()), rate=50.0)
    return a_step(model, forward, batch()), {
        "good_weights": good,
        "optimizer": optimizer,
        "trigger": "loss-spike",
        "spike_limit": {"loss": 20.0, "grad_norm": 50.0},
    }


@fault(cause="adam-eps-underflow", operator=MATMUL, module="body.0")
def eps_of_adam_in_fp16() -> Built:
    model = Regressor(outputs=3).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)

    forward = cross_entropy(model)

    def batch() -> dict[str, Tensor]:
        x = torch.randn(6, 5).half()
        x[:, 2] = 0
        return {"x": x, "y": torch.randint(0, 3, (6,))}

    good = copy_of(model)
    _take(optimizer, forward(batch()))
    return a_step(model, forward, batch()), {"good_weights": good, "optimizer": optimizer}


@fault(cause=("pure-fp16-weights", "lr-too-high", "nan-weights"), operator=MATMUL)
def update_beyond_fp16() -> Built:
    model = nn.Linear(5, 1).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)

    forward = squared_error(model)

    def batch(size: float) -> dict[str, Tensor]:
        return {"x": torch.randn(6, 5).half(), "y": (size * torch.randn(6)).half()}

    good = copy_of(model)
    _take(optimizer, forward(batch(7000.0)))
    return a_step(model, forward, batch(1.0)), {"good_weights": good, "optimizer": optimizer}


@fault(cause="lr-too-high", operator=("aten.mse_loss", *MATMUL), module=("", "0", "2", "4"))
def huge_step_known_from_the_optimizer_alone() -> Built:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    forward = squared_error(model)

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(6, 5), "y": torch.randn(6)}

    _take(optimizer, forward(batch()))
    _take(optimizer, forward(batch()), rate=1e9)
    return a_step(model, forward, batch()), {"optimizer": optimizer}


@fault(cause="lr-too-high",
       operator=(*MATMUL, "aten.mul", "aten.pow", "aten._scaled_dot_product_flash_attention_for_cpu"),
       module=("model.layers.0.mlp", "model.layers.0.mlp.down_proj", "model.layers.0.input_layernorm",
               "model.layers.0.self_attn", "model.layers.1.input_layernorm",
               "model.layers.0.post_attention_layernorm"))  # fmt: skip
def huge_step_of_an_optimizer_that_cannot_be_undone() -> Built:
    model = llama()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    ids = words()

    forward = own_loss(model)

    good = copy_of(model)
    _take(optimizer, forward({"input_ids": ids, "labels": ids}), rate=1e16)
    return a_step(model, forward, {"input_ids": ids, "labels": ids}), {"good_weights": good, "optimizer": optimizer}


@fault(cause=TOO_HIGH, operator=("aten.mse_loss", *MATMUL), module=("", "0", "2"))
def plain_sgd_that_diverged() -> Built:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e3)

    forward = squared_error(model)

    batch = {"x": torch.randn(6, 5), "y": torch.randn(6)}
    good = copy_of(model)
    while bool(forward(batch).isfinite()):
        _take(optimizer, forward(batch))
    return a_step(model, forward, batch), {"good_weights": good, "optimizer": optimizer}


@fault(cause=(*TOO_HIGH, "nan-weights"), operator=MATMUL, module=("body.0", "head"))
def update_beyond_fp32() -> Built:
    model = Regressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    forward = squared_error(model)

    def batch(size: float = 1.0) -> dict[str, Tensor]:
        return {"x": torch.randn(6, 5), "y": size * torch.randn(6)}

    _take(optimizer, forward(batch()))
    good = copy_of(model)
    _take(optimizer, forward(batch(1e6)), rate=1e36)
    return a_step(model, forward, batch()), {"good_weights": good, "optimizer": optimizer}
