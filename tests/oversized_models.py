"""Small models of transformers, healthy or with activations planted at five times fp16's range."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from stayfinite.precision.surgery.measuring import measure

FAR = 5 * 65504.0
VOCABULARY = 96


def build(kind: str) -> Any:
    """A fresh model of a few thousand parameters."""
    import transformers as hf

    torch.manual_seed(0)
    t5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    t5 |= {"decoder_start_token_id": 0, "dropout_rate": 0.0}
    llama = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    llama |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
    llama |= {"bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
    bart = {"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    bart |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    bart |= {"max_position_embeddings": 64, "decoder_start_token_id": 2, "init_std": 0.3}
    builders = {
        "t5 gated": lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(**t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
        ),
        "t5 relu": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**t5, feed_forward_proj="relu")),
        "mt5": lambda: hf.MT5ForConditionalGeneration(hf.MT5Config(**t5, feed_forward_proj="gated-gelu")),
        "byt5": lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(**t5 | {"num_layers": 3, "num_decoder_layers": 1}, feed_forward_proj="gated-gelu")
        ),
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**llama)),
        "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**llama)),
        "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**llama)),
        "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**llama)),
        "pegasus": lambda: hf.PegasusForConditionalGeneration(
            hf.PegasusConfig(**bart, activation_function="relu", scale_embedding=True)
        ),
        "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**bart, activation_function="relu")),
    }
    model = builders[kind]()
    with torch.no_grad():  # fresh norms and biases are 0 or 1, where many a mistake does not show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def batches(model: Any, *, count: int = 2, rows: int = 4, length: int = 12) -> list[dict[str, torch.Tensor]]:
    """Rows that can be learned: each target is its source, backwards."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(count):
        ids = torch.randint(5, VOCABULARY, (rows, length), generator=generator)
        if model.config.is_encoder_decoder:
            found.append({"input_ids": ids, "labels": ids.flip(1)})
        else:
            found.append({"input_ids": ids, "labels": ids})
    return found


FEED_FORWARDS = {
    "T5": ("DenseReluDense", ("wi_1", "wi"), "wo"),
    "MT5": ("DenseReluDense", ("wi_1", "wi"), "wo"),
    "Llama": ("mlp", ("up_proj",), "down_proj"),
    "Qwen3": ("mlp", ("up_proj",), "down_proj"),
    "Gemma": ("mlp", ("up_proj",), "down_proj"),
    "Gemma3": ("mlp", ("up_proj",), "down_proj"),
    "Pegasus": ("", ("fc1",), "fc2"),
    "Bart": ("", ("fc1",), "fc2"),
}


@torch.no_grad()
def plant(model: Any, fault: str) -> Any:
    """Feed-forwards at five times the range: `branch` what they give out, `hidden` what they hold inside."""
    _, ups, down = FEED_FORWARDS[type(model).__name__.partition("For")[0]]
    given = batches(model)
    downs = [name for name, _ in model.named_modules() if name.rpartition(".")[2] == down]
    for name in downs:
        parent = model.get_submodule(name.rpartition(".")[0])
        up = next(getattr(parent, each) for each in ups if hasattr(parent, each))
        out: nn.Linear = getattr(parent, down)
        sizes = measure(model, given, lambda batch: model(**batch))
        if fault == "branch":
            _multiply(out, FAR / sizes[f"{name}:out"].largest)
        else:
            factor = FAR / sizes[f"{name}:in"].largest
            _multiply(up, factor)
            out.weight.div_(factor)
    return model


def _multiply(layer: nn.Linear, factor: float) -> None:
    layer.weight.mul_(factor)
    if layer.bias is not None:
        layer.bias.mul_(factor)
