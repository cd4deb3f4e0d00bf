"""Train a model on all ranks: replicated (DDP), or in parts (``--shard``, ``--tensor-parallel``) by a plan."""

import copy
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from stayfinite.errors import UsageError
from stayfinite.recipes.running.processes import Place


class Team:
    """The model in training. The given model stays whole, for evaluation and saving.

    Without parts, both share their weights. With parts, a sharded copy is trained, and the whole model holds only
    weights, a quarter of the memory of training in one process.

    Arguments:
        model: on its device.
        optimizer: of its parameters, before its first step; switched to the trained parts.
        place: with tensor parallelism, each rank of a group holds part of the layers, and groups share the weights.
        shard: whether each rank holds a part.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, place: Place, *, shard: bool = False) -> None:
        self._in_parts = place.count > 1 and (shard or place.tensor > 1)
        self._whole = model
        self.trained: Any = _in_parts(model, optimizer, place) if self._in_parts else _replicated(model, place)
        """The module to call in training."""

    @torch.no_grad()
    def gather(self) -> None:
        """Update the whole model. Call on every rank."""
        if not self._in_parts:
            return
        whole = self._whole.state_dict(keep_vars=True)
        for name, value in self.trained.state_dict().items():
            whole[name].copy_(value.full_tensor() if hasattr(value, "full_tensor") else value)


def _replicated(model: nn.Module, place: Place) -> nn.Module:
    """The model under DDP if there are several ranks."""
    if place.count == 1:
        return model
    return DistributedDataParallel(model, device_ids=[place.device.index] if place.device.type == "cuda" else None)


def _in_parts(model: nn.Module, optimizer: Optimizer, place: Place) -> nn.Module:
    """A sharded copy of the model, handed to the optimizer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # Warns about blocks whose output is modified in place; the recipes have none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    sizes = {name: size for name, size in (("rows", place.row_ranks), ("tensor", place.tensor)) if size > 1}
    mesh = init_device_mesh(place.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    trained = copy.deepcopy(model)
    if "tensor" in sizes:
        from stayfinite.recipes.running.tensor_parallel import split

        split(trained, mesh["tensor"])
    if "rows" in sizes:
        for block in (*_blocks(trained), trained):
            fully_shard(block, mesh=mesh["rows"])
    if len(sizes) > 1:
        # Warns on every rank that a full tensor takes two gathers.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    parts = dict(trained.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [parts[names[id(parameter)]] for parameter in group["params"]]
    optimizer.state.clear()
    return trained


def _blocks(module: nn.Module) -> Iterator[Any]:
    """Layers of a model: the items of its outermost ModuleLists."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from _blocks(child)


def refuse_unshardable(config: Any, **others: Any) -> None:
    """Refuse flags that cannot be combined with ``--shard`` or ``--tensor-parallel``.

    Arguments:
        others: values of the other flags by name; falsy means not set.

    Raises:
        UsageError: one is set.
    """
    in_parts = {"--shard": config.shard, "--tensor-parallel": getattr(config, "tensor_parallel", 1) > 1}
    for mine in (flag for flag, asked in in_parts.items() if asked):
        for name in (name for name, asked in others.items() if asked):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{mine} and {flag} cannot be combined", fix=f"remove {mine} or {flag}")


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
