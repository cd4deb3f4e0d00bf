"""Faults inside of what wraps a model: gradient checkpointing, torch.compile, adapters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from faults.autopsies.models import Regressor, bert, llama, own_loss, squared_error, t5, words
from faults.autopsies.record import HALF, MATMUL, ROW, SINGULAR, Step, a_step, fault


class Length(nn.Module):
    """Lengths of projected vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).pow(2).sum(-1).sqrt()


def _zero_in_a_checkpoint(*, reentrant: bool) -> Step:
    model = nn.ModuleDict({"embed": nn.Linear(5, 8, bias=False), "length": Length()})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        embedded = model["embed"](batch["x"])
        return (checkpoint(model["length"], embedded, use_reentrant=reentrant) - 1).pow(2).mean()

    x = torch.randn(6, 5)
    x[2] = 0
    return a_step(model, forward, {"x": x})


ROOT = {"cause": SINGULAR, "operator": "aten.div", "forward_operator": "aten.sqrt", "module": "length",
        "phase": "backward", "rows": 2, "fixed_by": ("origin_guarded",)}  # fmt: skip


@fault(**ROOT)
def root_inside_of_a_checkpoint() -> Step:
    return _zero_in_a_checkpoint(reentrant=False)


@fault(**ROOT)
def root_inside_of_a_reentrant_checkpoint() -> Step:
    return _zero_in_a_checkpoint(reentrant=True)


def _checkpointed(model: Any, *, reentrant: bool) -> Any:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return model.train()


@fault(cause=("fp16-overflow", "fp16-overflow-model-family"), operator=MATMUL,
       module="encoder.block.0.layer.1.DenseReluDense.wo")  # fmt: skip
def overflow_inside_of_a_checkpointed_t5() -> Step:
    model = _checkpointed(t5(), reentrant=False)
    dense = model.encoder.block[0].layer[1].DenseReluDense
    with torch.no_grad():
        dense.wi.weight.mul_(500)
        dense.wo.weight.mul_(2000)
    ids = words()
    return a_step(
        model, lambda batch: model(**batch, use_cache=False).loss, {"input_ids": ids, "labels": ids}, autocast=HALF
    )


@fault(cause=("nan-weights", "poisoned-checkpoint"), operator=MATMUL, module="model.layers.1.mlp.up_proj")
def bad_weight_inside_of_a_reentrant_llama() -> Step:
    model = llama()
    model.enable_input_require_grads()
    model = _checkpointed(model, reentrant=True)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = math.inf
    ids = words()
    return a_step(model, lambda batch: model(**batch, use_cache=False).loss, {"input_ids": ids, "labels": ids})


@fault(cause=(*SINGULAR, "bad-data-row"), operator="aten.log", module=("", "_orig_mod"), rows=2,
       materials={"compiled": True})  # fmt: skip
def logarithm_inside_of_a_compiled_model() -> Step:
    class Deviance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Regressor()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            rate = F.softplus(self.net(x).squeeze(-1))
            return (rate - y + y * (torch.log(y) - torch.log(rate))).mean()  # planted here

    inner = Deviance()
    model = torch.compile(inner, backend="eager")
    y = torch.tensor([1.0, 3.0, 0.0, 2.0, 5.0])
    return a_step(model, lambda batch: model(batch["x"], batch["y"]), {"x": torch.randn(5, 5), "y": y})


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", module=("_orig_mod.1", "1"), phase="backward",
       rows=5, materials={"compiled": True})  # fmt: skip
def root_inside_of_a_compiled_model() -> Step:
    inner = nn.Sequential(nn.Linear(5, 8, bias=False), Length())
    model = torch.compile(inner, backend="aot_eager")

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return (model(batch["x"]) - 1).pow(2).mean()

    x = torch.randn(6, 5)
    x[5] = 0
    return a_step(model, forward, {"x": x})


@fault(cause=("upstream-bug", "environment"), operator=(), materials={"compiled": True}, fixed_by="eager")
def compiler_that_is_wrong() -> Step:
    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            return [each / 0.0 if torch.is_floating_point(each) else each for each in graph(*values)]

        return run

    model = torch.compile(Regressor(), backend=backend)
    return a_step(model, squared_error(model), {"x": torch.randn(6, 5), "y": torch.randn(6)})


@fault(cause="fp16-overflow", operator=(*MATMUL, "aten.mul"),
       module=("base_model.model.bert.encoder.layer.0.attention.self.value.lora_B.default",
               "base_model.model.bert.encoder.layer.0.attention.self.value"))  # fmt: skip
def adapter_that_overflows_in_fp16() -> Step:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(bert(), LoraConfig(r=2, target_modules=["value"], lora_alpha=4, modules_to_save=[]))
    adapter = model.base_model.model.bert.encoder.layer[0].attention.self.value.lora_B["default"]
    with torch.no_grad():
        adapter.weight.fill_(6e4)
    batch = {"input_ids": words(), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}
    return a_step(model, own_loss(model), batch, autocast=HALF)


@fault(cause=(*SINGULAR, *ROW), operator="aten.log", rows=3, materials={"compiled": True})
def compiled_loss_of_a_plain_model() -> Step:
    model = Regressor(outputs=3)

    @torch.compile(backend="eager")
    def loss(logits: Tensor, wanted: Tensor) -> Tensor:
        p = logits.softmax(-1)
        return (wanted * (wanted.log() - p.log())).sum(-1).mean()  # planted here

    wanted = torch.full((5, 3), 1 / 3)
    wanted[3] = torch.tensor([0.0, 0.5, 0.5])
    return a_step(
        model, lambda batch: loss(model(batch["x"]), batch["wanted"]), {"x": torch.randn(5, 5), "wanted": wanted}
    )
