"""The parts' sizes against what autograd really puts away, tensor by tensor, for models of every family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig

from stayfinite.inspection.memory.families import layout_of
from stayfinite.inspection.memory.plan import PRECISIONS, Plan, shape_from_config

BATCH, SEQ = 4, 64
QUIET = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
SMALL = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4}
WITH_KEYS = {**SMALL, "num_key_value_heads": 2, "vocab_size": 300, "head_dim": 16}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 160, "num_layers": 3, "num_heads": 4, "vocab_size": 300, "dropout_rate": 0.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "T5ForConditionalGeneration": ("t5", {**T5, "decoder_start_token_id": 0}),
    "MT5ForConditionalGeneration": ("mt5", {**T5, "num_decoder_layers": 2, "decoder_start_token_id": 0}),
    "BertForMaskedLM": ("bert", {**SMALL, **QUIET, "vocab_size": 300}),
    "BertForTokenClassification": ("bert", {**SMALL, **QUIET, "vocab_size": 300}),
    "RobertaForSequenceClassification": ("roberta", {**SMALL, **QUIET, "vocab_size": 300}),
    "DistilBertForMaskedLM": (
        "distilbert",
        {"dim": 64, "hidden_dim": 160, "n_layers": 3, "n_heads": 4, "vocab_size": 300, "dropout": 0.0}
        | {"attention_dropout": 0.0},
    ),
    "LlamaForCausalLM": ("llama", WITH_KEYS),
    "Qwen2ForCausalLM": ("qwen2", WITH_KEYS),
    "Qwen3ForCausalLM": ("qwen3", WITH_KEYS),
    "MistralForCausalLM": ("mistral", WITH_KEYS),
    "GPT2LMHeadModel": (
        "gpt2",
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300, "resid_pdrop": 0.0}
        | {"attn_pdrop": 0.0, "embd_pdrop": 0.0},
    ),
    "ViTForImageClassification": ("vit", {**SMALL, **QUIET, "image_size": 64, "patch_size": 8}),
}


def built(name: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    kind, fields = MODELS[name]
    config = AutoConfig.for_model(kind, **fields)
    config.architectures = [name]
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    return model.to(dtype).train(), config.to_dict()


def batch_for(name: str, model: Any) -> dict[str, torch.Tensor]:
    if name.startswith("ViT"):
        pixels = torch.randn(BATCH, 3, 64, 64, dtype=model.dtype, device="meta")
        return {"pixel_values": pixels, "labels": torch.zeros(BATCH, dtype=torch.long, device="meta")}
    ids = torch.randint(3, 290, (BATCH, SEQ), device="meta")
    if name.endswith("Classification"):
        shape = (BATCH, SEQ) if "Token" in name else (BATCH,)
        return {"input_ids": ids, "labels": torch.zeros(shape, dtype=torch.long, device="meta")}
    return {"input_ids": ids, "labels": ids}


def put_away(model: Any, batch: dict[str, torch.Tensor]) -> int:
    """Bytes of every storage that autograd keeps, the weights' own apart. Nothing is computed: all tensors are meta."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(**batch).loss
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("name", MODELS)
def test_the_parameters_are_counted_to_the_last_one(name: str) -> None:
    model, config = built(name, torch.float32)
    plan = Plan(batch=1, seq=8, target_seq=8, precision=PRECISIONS["fp32"])
    parts = layout_of(shape_from_config(config, name), plan).parts()
    counted = sum(part.matrices + part.vectors + part.table * (not part.shares_table) for part in parts)
    assert counted == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("precision", ["fp32", "pure-bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_kept_is_what_autograd_puts_away(name: str, precision: str) -> None:
    model, config = built(name, torch.float32 if precision == "fp32" else torch.bfloat16)
    plan = Plan(batch=BATCH, seq=SEQ, target_seq=SEQ, precision=PRECISIONS[precision], attention="eager")
    layout = layout_of(shape_from_config(config, name), plan)
    said = sum(part.kept + part.kept_for_weights for part in layout.parts()) + layout.loss.kept
    assert said == pytest.approx(put_away(model, batch_for(name, model)), rel=0.06)
