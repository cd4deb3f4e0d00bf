"""Healthy steps of real models that look sick to a hasty eye."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, bert, llama, llava, own_loss, pictures_with_words, t5, vit, words
from faults.autopsies.record import BRAIN, HALF, Step, a_step, look_alike


@look_alike
def t5_with_its_logarithm_of_zero() -> Step:
    model = t5()
    ids = words()
    labels = ids.clone()
    labels[:, 4:] = -100
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": labels}, autocast=BRAIN)


@look_alike
def bert_with_a_row_of_padding_only() -> Step:
    model = bert()
    mask = torch.ones(6, 7, dtype=torch.long)
    mask[3] = 0
    batch = {"input_ids": words(), "attention_mask": mask, "labels": torch.randint(0, 2, (6,))}
    return a_step(model, own_loss(model), batch)


@look_alike
def llama_padded_on_the_left() -> Step:
    model = llama(attn_implementation="eager")
    ids = words()
    mask = torch.ones_like(ids)
    mask[2, :4] = 0
    batch = {"input_ids": ids, "attention_mask": mask, "labels": torch.where(mask == 0, -100, ids)}
    return a_step(model, own_loss(model), batch)


@look_alike
def llava_with_most_labels_masked() -> Step:
    model = llava()
    batch = pictures_with_words()
    batch["labels"][:3] = -100
    return a_step(model, own_loss(model), batch)


@look_alike
def checkpointed_llama() -> Step:
    model = llama()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    ids = words()
    return a_step(model, lambda batch: model(**batch, use_cache=False).loss, {"input_ids": ids, "labels": ids})


@look_alike
def vit_in_half_precision_with_a_black_picture() -> Step:
    model = vit()
    images = torch.randn(4, 3, 8, 8)
    images[1] = 0
    batch = {"pixel_values": images, "labels": torch.tensor([0, 1, 2, 1])}
    return a_step(model, own_loss(model), batch, autocast=HALF)


@look_alike
def embedding_of_words_that_do_not_occur() -> Step:
    model = llama(tie_word_embeddings=False)
    ids = words().clamp_max(10)
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids}, autocast=HALF)


@look_alike
def relu_network_in_fp16_with_many_zero_gradients() -> Step:
    model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    batch = {"x": torch.randn(3, 5), "y": torch.randn(3)}
    return a_step(
        model, lambda batch: F.mse_loss(model(batch["x"]).squeeze(-1).float(), batch["y"]), batch, autocast=HALF
    )


@look_alike
def loss_scale_that_fits() -> Step:
    model = Regressor(outputs=3)
    batch = {"x": torch.randn(6, 5), "y": torch.randint(0, 3, (6,))}
    return a_step(
        model, lambda batch: F.cross_entropy(model(batch["x"]).float(), batch["y"]), batch, autocast=HALF, scale=2.0**10
    )


@look_alike
def fp16_just_below_its_limit() -> Step:
    model = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        model.weight.fill_(40.0)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        large = model(batch["x"])
        return (large.float() / 65504).pow(2).mean()

    return a_step(model, forward, {"x": torch.full((3, 4), 406.0)}, autocast=HALF)


@look_alike
def t5_in_fp16_that_clamps_its_own_infinities() -> Step:
    model = t5(dropout_rate=0.0).half()
    dense = model.encoder.block[0].layer[1].DenseReluDense
    with torch.no_grad():
        dense.wi.weight.mul_(400)
        dense.wo.weight.mul_(2000)
    ids = words()
    return a_step(model, own_loss(model), {"input_ids": ids, "labels": ids})
