"""Worlds for fp8 layers: some of them in bf16, or with rowwise scales."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stayfinite.autopsy.steps.changes import FunctionChange, other_forwards, replaced

EIGHT_BITS = frozenset(
    dtype
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if (dtype := getattr(torch, name, None)) is not None
)


def torchao_layers(model: nn.Module) -> list[str]:
    """Paths of torchao's float8 linear layers. Imports nothing: a model with such layers has loaded torchao."""
    library: Any = sys.modules.get("torchao.float8.float8_linear")
    if library is None:
        return []
    return [path for path, module in model.named_modules() if isinstance(module, library.Float8Linear)]


def casting_layers(model: nn.Module) -> list[str]:
    """Paths of other modules that cast to fp8: those with a scale or an amax history."""
    found = []
    for path, module in model.named_modules():
        kept = {*module._buffers, *vars(module)}
        if path and any("amax" in name or "fp8" in name or name in ("scale", "input_scale") for name in kept):
            found.append(path)
    return found


@contextmanager
def in_bf16(model: nn.Module, paths: Sequence[str]) -> Iterator[None]:
    """These layers compute without fp8: torchao's as plain linear layers, others with casts to bf16."""
    known = set(torchao_layers(model))
    modules = {path: model.get_submodule(path) for path in paths}
    forwards = {each: _plain(each) if path in known else _uncast(each.forward) for path, each in modules.items()}
    with other_forwards(forwards):
        yield


@contextmanager
def rowwise(model: nn.Module, paths: Sequence[str]) -> Iterator[None]:
    """torchao's layers use rowwise scales."""
    library: Any = import_module("torchao.float8")
    recipe = library.Float8LinearConfig.from_recipe_name("rowwise")
    layers: list[Any] = [model.get_submodule(path) for path in paths]
    with ExitStack() as changed:
        for layer in layers:
            config = dataclasses.replace(recipe, emulate=layer.config.emulate)
            changed.enter_context(replaced(layer, config=config))
        yield


def is_tensorwise(model: nn.Module, path: str) -> bool:
    """Whether the layer has one scale per tensor."""
    layer: Any = model.get_submodule(path)
    return bool(layer.config.cast_config_input.scaling_granularity.value == "tensorwise")


def guilty(paths: Sequence[str], helps: Callable[[Sequence[str]], bool]) -> list[str]:
    """The smallest set, by halving, that helps alone; empty if not even all layers do."""
    found = list(paths)
    if not found or not helps(found):
        return []
    while len(found) > 1:
        middle = len(found) // 2
        half = next((part for part in (found[:middle], found[middle:]) if helps(part)), None)
        if half is None:  # several of them are needed
            return found
        found = half
    return found


def _plain(module: Any) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        # Under autocast linear() casts; otherwise weight and input already agree.
        return functional.linear(x, module.weight, module.bias)

    return forward


def _uncast(computing: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        with _NoEightBits():
            return computing(*args, **kwargs)

    return forward


class _NoEightBits(FunctionChange):
    """Casts to fp8 go to bf16, which has the range of fp32."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function with bf16 instead of fp8."""
        args = tuple(_wider(arg) for arg in args)
        return func(*args, **{name: _wider(value) for name, value in kwargs.items()})


def _wider(value: Any) -> Any:
    return torch.bfloat16 if isinstance(value, torch.dtype) and value in EIGHT_BITS else value
