"""How large what goes into and comes out of each module is, and how much of it fp16 would round to 0."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.errors import UsageError
from stayfinite.precision.formats import FP16
from stayfinite.state.parts import evaluating

BECOMES_ZERO = FP16.smallest_subnormal / 2
"""Half of fp16's least number: this and less rounds to 0."""


@dataclass(slots=True)
class Size:
    """Of one tensor, over all batches."""

    largest: float = 0.0
    values: int = 0
    """That are not 0."""
    lost: int = 0
    """Of these, in fp16."""

    @classmethod
    def of(cls, tensor: Tensor) -> Size:
        """Of one tensor."""
        size = cls()
        size.add(tensor)
        return size

    def add(self, tensor: Tensor) -> None:
        """Look at one more."""
        sizes = tensor.detach().abs()
        largest = float(sizes.amax())
        self.largest = math.inf if math.isnan(largest) else max(self.largest, largest)
        self.values += int((sizes > 0).sum())
        self.lost += int(((sizes > 0) & (sizes <= BECOMES_ZERO)).sum())


def check_full_precision(model: nn.Module) -> None:
    """Raise UsageError if a weight is in half precision."""
    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16):
            raise UsageError(f"{name} is in half precision", fix="load the model with dtype=torch.float32")


def measure(model: nn.Module, batches: Sequence[Any], run: Callable[[Any], Any]) -> dict[str, Size]:
    """`module:in` and `module:out` -> size, for every module of the model, forward passes in fp32."""
    paths: dict[nn.Module, list[str]] = defaultdict(list)
    for path, module in model.named_modules(remove_duplicate=False):
        if path:
            paths[module].append(path)
    sizes: dict[str, Size] = {}

    def look(names: list[str], side: str, value: Any) -> None:
        tensor = _main_tensor(value)
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            return
        size = sizes.setdefault(f"{names[0]}:{side}", Size())
        size.add(tensor)
        for other in names[1:]:
            sizes[f"{other}:{side}"] = size

    def listen(module: nn.Module, names: list[str]) -> list[Any]:
        def before(_module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            look(names, "in", given or tuple(named.values()))

        return [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(lambda _module, _given, result: look(names, "out", result)),
        ]

    hooks = [hook for module, names in paths.items() for hook in listen(module, names)]
    try:
        with evaluating(model), torch.no_grad():
            for batch in batches:
                run(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return sizes


def weight_sizes(model: nn.Module) -> dict[str, Size]:
    """Size of each parameter, by name."""
    return {name: Size.of(p) for name, p in model.named_parameters() if p.numel()}


def lost_share(sizes: Mapping[str, Size]) -> float:
    """Of all values that are not 0, the share that fp16 rounds to 0."""
    distinct = {id(size): size for size in sizes.values()}.values()
    values = sum(size.values for size in distinct)
    return sum(size.lost for size in distinct) / values if values else 0.0


def _main_tensor(value: Any) -> Tensor | None:
    """The tensor itself, or the first of several: the hidden states, in every block of transformers."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, tuple | list) and value:
        return _main_tensor(value[0])
    if hasattr(value, "last_hidden_state"):
        return _main_tensor(value.last_hidden_state)
    return _main_tensor(value.logits) if hasattr(value, "logits") else None
