"""Tensor-parallel plans: how each layer of a model family is split."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from stayfinite.errors import UsageError

ATTENTION = r"(encoder|decoder)\.block\.\*\.layer\.\*\.(SelfAttention|EncDecAttention)"
T5 = {
    rf"{ATTENTION}\.(q|k|v|relative_attention_bias)": "colwise",
    rf"{ATTENTION}\.o": "rowwise",
    r"(encoder|decoder)\.block\.\*\.layer\.\*\.DenseReluDense\.(wi|wi_0|wi_1)": "colwise",
    r"(encoder|decoder)\.block\.\*\.layer\.\*\.DenseReluDense\.wo": "rowwise",
    r"shared|encoder\.embed_tokens|decoder\.embed_tokens": "embedding_rowwise",
    r"lm_head": "colwise_gather_output",
}
"""transformers has no plan for T5. Each rank has some heads, with their position biases, and some features."""
OWN = {"t5": T5, "mt5": T5, "umt5": T5}
WIDTHS = {"colwise": "out_features", "rowwise": "in_features"}
"""The features of a layer that are split, where that takes a number of them that divides."""
KNOWN = {*WIDTHS, "replicated_with_grad_allreduce", "colwise_gather_output", "embedding_rowwise"}
"""Styles of transformers' plans that torch supports."""
HEADS = ("num_heads", "num_attention_heads", "num_key_value_heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A layer to split."""

    name: str
    style: str
    """As transformers names it."""
    module: nn.Module


def refuse_unsplittable(model: Any, ranks: int) -> None:
    """Raise UsageError if this many ranks cannot split the model; see :func:`planned_layers`."""
    if ranks > 1:
        planned_layers(model, ranks)


def planned_layers(model: Any, ranks: int) -> list[Planned]:
    """The layers of a model to split, each once.

    Arguments:
        model: may have LoRA adapters.

    Raises:
        UsageError: no plan for its family, or heads or features not divisible.
    """
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    plan = _plan_of(bare)
    found = [
        Planned(name=name, style=style, module=module)
        for name, module in bare.named_modules()
        if (style := _style_of(name, plan)) is not None
    ]
    _refuse_uneven(bare, found, ranks)
    return found


def _plan_of(model: Any) -> Mapping[str, str]:
    kind = str(getattr(model.config, "model_type", type(model).__name__))
    if kind in OWN:
        return OWN[kind]
    given = dict(getattr(model, "tp_plan", None) or {})
    if not given:
        raise UsageError(
            f"--tensor-parallel: there is no plan for models of the family {kind}",
            fix="--shard, which works with every model; T5, mT5, LLaMA, Qwen, Mistral and Gemma have plans",
        )
    if odd := sorted(set(given.values()) - KNOWN):
        raise UsageError(
            f"--tensor-parallel: the plan for {kind} has layers of the kind {odd[0]}, which are not supported here",
            fix="--shard, which works with every model",
        )
    return {re.escape(name): style for name, style in given.items()}


def _style_of(name: str, plan: Mapping[str, str]) -> str | None:
    generic = re.sub(r"\.\d+(?=\.|$)", ".*", name)
    return next((style for pattern, style in plan.items() if re.fullmatch(pattern, generic)), None)


def _refuse_uneven(model: Any, found: list[Planned], ranks: int) -> None:
    shape = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    for name in HEADS:
        heads = getattr(shape, name, None)
        if isinstance(heads, int) and heads % ranks:
            words = "key-value heads" if "key_value" in name else "attention heads"
            raise UsageError(
                f"--tensor-parallel {ranks}: {heads} {words} cannot be shared out evenly among {ranks} ranks",
                fix=_fewer(heads, ranks),
            )
    for each in found:
        width = getattr(each.module, WIDTHS.get(each.style, ""), None)
        if isinstance(width, int) and width % ranks:
            raise UsageError(
                f"--tensor-parallel {ranks}: the {width} features of {each.name} cannot be shared out evenly",
                fix=_fewer(width, ranks),
            )


def _fewer(whole: int, ranks: int) -> str:
    fitting = max(each for each in range(1, ranks) if whole % each == 0)
    return f"--tensor-parallel {fitting}" if fitting > 1 else "leave --tensor-parallel out; --shard takes any number"
