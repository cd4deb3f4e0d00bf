"""Activations of real models that fp16 cannot hold."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import bert, llama, llava, own_loss, pictures_with_words, t5, vit, words
from faults.autopsies.record import HALF, MATMUL, OVERFLOW, WIDER, Step, a_step, fault


@fault(cause=(*OVERFLOW, "fp16-overflow-model-family"), operator=MATMUL,
       module="encoder.block.1.layer.1.DenseReluDense.wo", fixed_by=WIDER)  # fmt: skip
def t5_feed_forward() -> Step:
    model = t5()
    with torch.no_grad():
        model.encoder.block[1].layer[1].DenseReluDense.wi.weight.mul_(500)
        model.encoder.block[1].layer[1].DenseReluDense.wo.weight.mul_(2000)
    ids = words()
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids}, autocast=HALF)


@fault(cause=OVERFLOW, operator=MATMUL, module="decoder.block.0.layer.2.DenseReluDense.wo", rows=4, fixed_by=WIDER)
def t5_decoder_overflow_of_one_row() -> Step:
    model = t5(feed_forward_proj="gated-gelu", dropout_rate=0.0)
    block = model.decoder.block[0].layer
    with torch.no_grad():
        block[0].SelfAttention.o.weight.zero_()
        block[1].EncDecAttention.o.weight.zero_()
        block[2].layer_norm.weight.mul_(3)
        block[2].DenseReluDense.wi_0.weight[:, 15] += 8
        block[2].DenseReluDense.wi_1.weight[:, 15] += 8
        block[2].DenseReluDense.wo.weight.mul_(100)
        model.shared.weight[:, 15] = 0
        model.shared.weight[30] = torch.eye(16)[15]
    ids = words().clamp_max(29)
    labels = ids.clone()
    labels[4, 2] = 30

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return model(**batch).loss

    return a_step(model, forward, {"input_ids": ids, "labels": labels})


@fault(cause=OVERFLOW, operator=MATMUL, module="bert.encoder.layer.1.attention.self", fixed_by=WIDER)
def bert_attention_logits() -> Step:
    model = bert(attn_implementation="eager")
    attention = model.bert.encoder.layer[1].attention.self
    with torch.no_grad():
        attention.query.weight.mul_(1e4)
        attention.key.weight.mul_(1e4)
    batch = {"input_ids": words(), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}
    return a_step(model, own_loss(model), batch, autocast=HALF)


@fault(cause=(*OVERFLOW, "fp16-overflow-model-family"), operator=MATMUL,
       module="decoder.block.1.layer.1.EncDecAttention")  # fmt: skip
def attention_scores_of_t5() -> Step:
    model = t5(attn_implementation="eager")
    attention = model.decoder.block[1].layer[1].EncDecAttention
    with torch.no_grad():
        attention.q.weight.mul_(3000)
        attention.k.weight.mul_(3000)
    ids = words()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return model(**batch).loss

    return a_step(model, forward, {"input_ids": ids, "labels": ids})


@fault(cause=(*OVERFLOW, "attention-unscaled"), operator=MATMUL, module="1", fixed_by=WIDER)
def unscaled_attention_by_hand() -> Step:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            scores = torch.einsum("bqd,bkd->bqk", 300 * q, 300 * k)  # planted here
            return scores.softmax(-1) @ v

    model = nn.Sequential(nn.Linear(5, 8), Attention(), nn.Linear(8, 1))

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            predicted = model(batch["x"]).mean((1, 2))
        return F.mse_loss(predicted.float(), batch["y"])

    return a_step(model, forward, {"x": 2 * torch.randn(5, 6, 5), "y": torch.randn(5)})


@fault(cause=OVERFLOW, operator="aten.mul", module="model.layers.0.mlp", fixed_by=WIDER)
def llama_in_pure_fp16() -> Step:
    model = llama().half()
    mlp = model.model.layers[0].mlp
    with torch.no_grad():
        mlp.gate_proj.weight.mul_(1.5e4)
        mlp.up_proj.weight.mul_(1.5e4)
    ids = words()
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids})


@fault(cause=OVERFLOW, operator=MATMUL, module="bert.encoder.layer.0.output.dense")
def bert_stored_in_fp16() -> Step:
    model = bert(hidden_act="relu").half()
    layer = model.bert.encoder.layer[0]
    with torch.no_grad():
        layer.intermediate.dense.weight.mul_(2000)
        layer.output.dense.weight.mul_(3000)
    batch = {"input_ids": words(), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}
    return a_step(model, own_loss(model), batch)


@fault(cause=(*OVERFLOW, "unscaled-input"),
       operator=("aten.convolution", "aten.mkldnn_convolution", "aten.thnn_conv2d", "aten._slow_conv2d_forward"),
       module="vit.embeddings.patch_embeddings.projection", fixed_by=WIDER)  # fmt: skip
def vit_given_raw_sensor_values() -> Step:
    model = vit()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return model(**batch).loss

    images = 20000 * torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        model.vit.embeddings.patch_embeddings.projection.weight.fill_(0.5)
    return a_step(model, forward, {"pixel_values": images, "labels": torch.tensor([0, 1, 2, 1])})


@fault(cause=OVERFLOW, operator=MATMUL, module="model.multi_modal_projector.linear_2")
def projector_of_llava() -> Step:
    model = llava()
    with torch.no_grad():
        model.model.multi_modal_projector.linear_2.weight.mul_(1e5)
        model.model.multi_modal_projector.linear_1.weight.mul_(100)
    return a_step(model, own_loss(model), pictures_with_words(), autocast=HALF)


@fault(cause=OVERFLOW, operator=MATMUL, module="lm_head")
def logits_of_a_large_vocabulary_in_fp16() -> Step:
    model = llama()
    with torch.no_grad():
        model.lm_head.weight.mul_(8e5)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast(device_type="cpu", dtype=torch.float16):
            logits = model(input_ids=batch["ids"]).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch["ids"][:, 1:].flatten())

    return a_step(model, forward, {"ids": words()})
