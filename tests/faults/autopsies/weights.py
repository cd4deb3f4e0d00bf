"""Weights and buffers that were bad before the step began."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from faults.autopsies.models import Regressor, bert, cross_entropy, llama, own_loss, squared_error, t5, words
from faults.autopsies.record import MATMUL, POISONED, Built, Step, a_step, copy_of, fault


@fault(cause=POISONED, operator=MATMUL, module="bert.encoder.layer.1.intermediate.dense", fixed_by="good_weights")
def nan_in_a_bert_weight() -> Built:
    model = bert()
    good = copy_of(model)
    with torch.no_grad():
        model.bert.encoder.layer[1].intermediate.dense.weight[3, 4] = math.nan
    batch = {"input_ids": words(), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}
    return a_step(model, own_loss(model), batch), {"good_weights": good}


@fault(cause=POISONED, operator="aten.mul", module="model.layers.1.input_layernorm")
def nan_in_the_weights_with_nothing_to_go_back_to() -> Step:
    model = llama()
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight[5] = math.nan
    ids = words()
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids})


@fault(cause=POISONED, operator=MATMUL, module="head")
def infinity_in_a_bias() -> Built:
    model = Regressor()
    good = copy_of(model)
    with torch.no_grad():
        model.head.bias[0] = -math.inf

    forward = squared_error(model)

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)}), {"good_weights": good}


@fault(cause=POISONED, operator="aten.embedding", module="model.embed_tokens", rows=(2, 4))
def nan_in_the_row_of_a_rare_word() -> Built:
    model = llama()
    good = copy_of(model)
    with torch.no_grad():
        model.model.embed_tokens.weight[35] = math.nan
    ids = words().clamp_max(30)
    ids[2, 1] = ids[4, 3] = 35
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids}), {"good_weights": good}


@fault(cause=POISONED,
       operator=("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten.cudnn_batch_norm",
                 "aten._native_batch_norm_legit_no_training", "aten._batch_norm_no_update",
       "aten._batch_norm_with_update"),
       module="1")  # fmt: skip
def nan_in_the_buffers_of_a_frozen_batch_norm() -> Built:
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    model[1].eval()
    good = copy_of(model)
    model[1].running_var[2] = math.nan

    forward = squared_error(model)

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)}), {"good_weights": good}


@fault(cause=POISONED, operator=MATMUL, module=("AveragedModel.module.body.0", "teacher.module.body.0", ""))
def poisoned_average_of_a_teacher() -> Step:
    student = Regressor(outputs=4)
    teacher = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    broken = copy.deepcopy(student)
    with torch.no_grad():
        broken.body[0].weight[1, 1] = math.nan
    teacher.update_parameters(student)
    teacher.update_parameters(broken)

    def forward(batch: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = teacher(batch).softmax(-1)
        return F.kl_div(student(batch).log_softmax(-1), wanted, reduction="batchmean")

    return a_step(student, forward, torch.randn(6, 5))


@fault(cause=POISONED, operator=MATMUL, module="teacher.head")
def poisoned_teacher_inside_of_the_model() -> Built:
    class Distillation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = Regressor(outputs=4)
            self.teacher = copy.deepcopy(self.student).requires_grad_(requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return F.mse_loss(self.student(x), self.teacher(x) + 0.1)

    model = Distillation()
    good = copy_of(model)
    model.teacher.head.weight.fill_(math.nan)
    return a_step(model, model, torch.randn(6, 5)), {"good_weights": good}


@fault(cause=POISONED, operator=MATMUL, module="base_model.model.model.layers.1.self_attn.q_proj.lora_B.default")
def nan_in_an_adapter() -> Built:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(llama(), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    good = copy_of(model)
    adapter = model.base_model.model.model.layers[1].self_attn.q_proj.lora_B["default"]
    with torch.no_grad():
        adapter.weight[0, 0] = math.nan
    ids = words()
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids}), {"good_weights": good}


@fault(cause=POISONED, operator=("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training"), module="1")
def infinity_in_the_running_mean_of_a_picture_model() -> Built:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    good = copy_of(model)
    model[1].running_mean[1] = -math.inf
    return a_step(model, cross_entropy(model), {"x": torch.randn(4, 3, 8, 8), "y": torch.randint(0, 2, (4,))}), {
        "good_weights": good
    }


@fault(cause=POISONED, operator=("aten.embedding", *MATMUL, "aten.t", "aten.mul"),
       module=("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head"))  # fmt: skip
def nan_in_tied_embeddings() -> Built:
    model = t5(tie_word_embeddings=True)
    good = copy_of(model)
    with torch.no_grad():
        model.shared.weight[0, 0] = math.nan
    ids = words()
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids}), {"good_weights": good}


@fault(cause=POISONED, operator="aten.mul")
def nan_in_a_parameter_of_the_model_itself() -> Step:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Regressor()
            self.scale = nn.Parameter(torch.tensor(math.nan))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * self.net(x)  # planted here

    model = Scaled()
    return a_step(model, lambda batch: model(batch["x"]).pow(2).mean(), {"x": torch.randn(4, 5)})
