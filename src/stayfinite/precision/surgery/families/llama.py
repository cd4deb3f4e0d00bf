"""LLaMA, Mistral, Qwen2, Qwen3, Gemma 1 to 3: RMS norms before each branch, in Gemma 2 and 3 after it as well."""

from __future__ import annotations

from typing import Any

from torch import nn

from stayfinite.precision.surgery.families.parts import HOMOGENEOUS, LOGITS, Parts
from stayfinite.precision.surgery.freedoms import Anatomy, Freedom

TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})


def anatomy(model: nn.Module) -> Anatomy:
    """The freedoms of a LLaMA or a Gemma."""
    parts, config = Parts(model), getattr(model, "config", None)
    activation = str(getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", ""))
    base = "model." if hasattr(model, "model") else ""
    layers: Any = model.get_submodule(f"{base}layers")
    freedoms: list[Freedom] = []
    fixed: dict[str, str] = {}
    stream = parts.whole([f"{base}embed_tokens"], 1)
    inside = {f"{base}embed_tokens:out": 1, f"{base}norm:in": 1}
    norms = [f"{base}norm"]
    for index, layer in enumerate(layers):
        path = f"{base}layers.{index}"
        attention, mlp, before = f"{path}.self_attn", f"{path}.mlp", f"{path}.input_layernorm"
        sandwich = hasattr(layer, "pre_feedforward_layernorm")
        between = f"{path}.pre_feedforward_layernorm" if sandwich else f"{path}.post_attention_layernorm"
        norms += [before, between]
        inside |= {f"{path}:out": 1, f"{before}:in": 1, f"{between}:in": 1}
        inside |= {f"{attention}.o_proj:out": 1, f"{mlp}.down_proj:out": 1}
        stream |= parts.whole([f"{attention}.o_proj", f"{mlp}.down_proj"], 1)
        if sandwich:
            # The norm after a branch takes the factor in, because of its epsilon, and gives it out, by its weight.
            after = [f"{path}.post_attention_layernorm", f"{path}.post_feedforward_layernorm"]
            norms += after
            stream |= parts.whole(after, 1)
            inside |= {f"{each}:out": 1 for each in after}
        query, key = f"{attention}.q_proj", f"{attention}.k_proj"
        if hasattr(layer.self_attn, "q_norm"):
            # These norms have the same epsilon, so their inputs take the factor too; their outputs do not.
            stream |= parts.whole([query, key], 1)
            inside |= {f"{query}:out": 1, f"{key}:out": 1}
            norms += [f"{attention}.q_norm", f"{attention}.k_norm"]
            freedoms.append(parts.scores(f"{attention} scores", f"{attention}.q_norm", f"{attention}.k_norm"))
        else:
            freedoms.append(parts.scores(f"{attention} scores", query, key))
        freedoms.append(parts.pair(f"{attention} values", f"{attention}.v_proj", f"{attention}.o_proj"))
        freedoms.append(parts.pair(mlp, f"{mlp}.up_proj", f"{mlp}.down_proj"))
        freedoms.append(parts.norm_output(before, [query, key, f"{attention}.v_proj"]))
        freedoms.append(parts.norm_output(between, [f"{mlp}.gate_proj", f"{mlp}.up_proj"]))
        if activation not in HOMOGENEOUS:
            fixed[f"{mlp}.gate_proj:out"] = f"{activation} is not piecewise linear: the gate cannot be rescaled"
    if hasattr(model, "lm_head"):
        fixed["lm_head:out"] = LOGITS
        if parts.tied("lm_head.weight", f"{base}embed_tokens.weight"):
            stream |= parts.whole([f"{base}norm"], -1)
            inside |= {f"{base}norm:out": -1, "lm_head:in": -1}
        else:
            freedoms.append(parts.norm_output(f"{base}norm", ["lm_head"]))
    residual = Freedom(
        name="residual stream", parameters=stream, activations=inside, norms=norms, setting="rms_norm_eps"
    )
    less_one = (name for name, _ in model.named_parameters() if type(_owner(model, name)).__name__.startswith("Gemma"))
    offsets = frozenset(name for name in less_one if type(_owner(model, name)).__name__.endswith("RMSNorm"))
    return Anatomy(family="LLaMA", freedoms=[residual, *freedoms], fixed=fixed, offsets=offsets)


def _owner(model: nn.Module, parameter: str) -> nn.Module:
    return model.get_submodule(parameter.rpartition(".")[0])
