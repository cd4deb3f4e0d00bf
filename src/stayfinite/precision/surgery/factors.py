"""Factors that a linear layer applies in its forward pass, so that weights, optimizer and checkpoints stay as they are.

It computes `(x * g) @ (weight * f)` in fp16 and gives the result back divided by both, in fp32. Autocast keeps residual
streams, norms, activations and losses in fp32 if what they read is, so nothing else has to know. Where an architecture
is known, layers that follow each other share a factor instead, and what is between them stays fp16.

As with a precision plan, a module's class becomes a subclass; names, hooks and parameters do not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.precision.surgery.freedoms import Anatomy, Freedom

FACTORS = "_factors"
"""Attribute of a module: name of a parameter, `x` for its input or `y` for its output -> factor."""


def freedoms_in_autocast(model: nn.Module, anatomy: Anatomy | None) -> list[Freedom]:
    """What can take a factor under autocast, outputs before inputs.

    Of an architecture's own freedoms those without norms, which lie between two layers; then of every other linear
    layer its output and its input. A residual stream needs none: it is fp32.
    """
    between = [freedom for freedom in anatomy.freedoms if not freedom.norms] if anatomy else []
    taken = {name for freedom in between for name in freedom.activations}
    outputs: list[Freedom] = []
    inputs: list[Freedom] = []
    for path, module in model.named_modules():
        if type(module) is not nn.Linear:
            continue
        if f"{path}:out" not in taken:
            own = {f"{path}.{name}".lstrip("."): 1 for name, _ in module.named_parameters()}
            activations = {f"{path}:out": 1}
            outputs.append(Freedom(name=f"{path} output", parameters=own, activations=activations, restored=path))
        if f"{path}:in" not in taken:
            activations = {f"{path}:in": 1}
            inputs.append(
                Freedom(name=f"{path} input", parameters={}, activations=activations, restored=path, entered=True)
            )
    # What a branch reads shares the factor of its last layer, so that comes first.
    return [*outputs, *between, *inputs]


class Factors:
    """The factors of one model, by the exponents of its freedoms."""

    def __init__(self, model: nn.Module, freedoms: Sequence[Freedom]) -> None:
        self._model, self._freedoms = model, freedoms
        self.exponents: dict[str, int] = {}

    def set(self, exponents: Mapping[str, int]) -> None:
        """Apply these from the next forward pass on, instead of those before."""
        self.exponents = {name: exponent for name, exponent in exponents.items() if exponent}
        found: dict[nn.Module, dict[str, float]] = defaultdict(lambda: defaultdict(lambda: 1.0))
        for freedom in self._freedoms:
            factor = 2.0 ** self.exponents.get(freedom.name, 0)
            for name, power in freedom.parameters.items():
                path, _, own = name.rpartition(".")
                module = self._model.get_submodule(path)
                if isinstance(module, nn.Linear):
                    found[module][own] *= factor**power
                elif own == "weight":  # a norm: its bias takes the factor with it
                    found[module]["y"] *= factor**power
            if freedom.restored is not None:
                module = self._model.get_submodule(freedom.restored)
                found[module]["y"] /= factor
                if freedom.entered:
                    found[module]["x"] *= factor
        for module, factors in found.items():
            _apply(module, factors if any(factor != 1 for factor in factors.values()) else {})

    def remove(self) -> None:
        """Leave every module as it was."""
        self.set({})

    def inside(self, exponents: Mapping[str, int] | None = None) -> dict[str, int]:
        """`module:in` or `module:out` -> the exponent of two that it has where it is fp16."""
        return self._shifts(self._freedoms, self.exponents if exponents is None else exponents)

    def outside(self) -> dict[str, int]:
        """The same as hooks see it: before a layer's own factors, and after they are given back."""
        return self._shifts([freedom for freedom in self._freedoms if freedom.restored is None], self.exponents)

    @staticmethod
    def _shifts(freedoms: Sequence[Freedom], exponents: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for freedom in freedoms:
            for name, power in freedom.activations.items():
                found[name] += power * exponents.get(freedom.name, 0)
        return found


def _apply(module: nn.Module, factors: Mapping[str, float]) -> None:
    original = vars(type(module)).get("scaled_from")
    if not factors:
        if original is not None:
            module.__class__ = original
            del vars(module)[FACTORS]
        return
    if original is None:
        module.__class__ = scaled_class(type(module))
    vars(module)[FACTORS] = dict(factors)


def scaled_class(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass of a module class that applies the factors of its instances."""
    made = _MADE.get(kind)
    if made is None:

        def reduced(self: Any, _protocol: Any) -> tuple[Any, ...]:
            # Copy and pickle through the original class: this one cannot be imported.
            return _rebuilt, (kind,), dict(vars(self))

        forward = _linear if issubclass(kind, nn.Linear) else _scaled_output(kind)
        body = {"forward": forward, "__reduce_ex__": reduced, "__module__": kind.__module__, "scaled_from": kind}
        made = _MADE[kind] = cast("type[nn.Module]", type(kind.__name__, (kind,), body))
    return made


_MADE: dict[type[nn.Module], type[nn.Module]] = {}


def _rebuilt(kind: type[nn.Module]) -> nn.Module:
    made = scaled_class(kind)
    return made.__new__(made)


def _linear(self: Any, x: Tensor) -> Tensor:
    factors = vars(self)[FACTORS]
    weight = _times(self.weight, factors.get("weight", 1.0))
    bias = self.bias
    if bias is not None:
        # The sum before it has both factors.
        bias = _times(bias, factors.get("bias", 1.0) * factors.get("x", 1.0))
    output = F.linear(_times(x, factors.get("x", 1.0)), weight, bias)
    back = factors.get("y", 1.0)
    return output if back == 1 else output.float() * back


def _times(tensor: Tensor, factor: float) -> Tensor:
    return tensor if factor == 1 else tensor * factor


def _scaled_output(kind: type[nn.Module]) -> Any:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return kind.forward(self, *args, **kwargs) * vars(self)[FACTORS]["y"]

    return forward
