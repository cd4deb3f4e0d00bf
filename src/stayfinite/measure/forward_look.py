"""Hooks for one forward pass that measure attention logits, router loads and activations.

Attention logits are taken where torch's own kernels are called: the input of the softmax, or a recomputation for some
of the queries of a fused kernel. Kernels of other packages and compiled models are not covered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stayfinite.core.early_signs import ACTIVATION, ATTENTION, ROUTER

MOST = 128
"""Most layers, attention modules and routers to measure, evenly spaced, for each kind."""

QUERIES = 64
"""Queries of a fused attention kernel whose logits are recomputed."""

ATTENTIVE = re.compile(r"attention|attn|mha", re.IGNORECASE)

Key = tuple[str, str]


class Ear:
    """A hook that does nothing in a copied or saved model."""

    def __init__(self, hear: Callable[..., None]) -> None:
        self._hear = hear

    def __call__(self, *args: Any) -> None:
        """Call the hook if gradients are enabled and nothing is being compiled or captured."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return
        self._hear(*args)

    def __deepcopy__(self, _memo: Any) -> Callable[..., None]:
        return nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # A no-op that exists wherever the model is loaded.
        return getattr, (nullcontext(), "__exit__")


class ForwardLook:
    """Measures the forward passes of one step, from construction to :meth:`finish`."""

    def __init__(self, model: nn.Module) -> None:
        self._found: dict[Key, Tensor] = {}
        self._loads: dict[str, Tensor] = {}
        self._modes: list[ExitStack] = []
        self._handles: list[Any] = []
        for name, module in spaced(layers_of(model)):
            self._handles.append(module.register_forward_hook(Ear(partial(self._activation, name))))
        for name, module, experts in spaced(routers_of(model)):
            self._handles.append(module.register_forward_hook(Ear(partial(self._router, name, experts))))
        for name, module in spaced(attentions_of(model)):
            self._handles.append(module.register_forward_pre_hook(Ear(partial(self._attend, name))))
            self._handles.append(module.register_forward_hook(Ear(self._attended), always_call=True))

    def finish(self) -> tuple[tuple[Key, ...], Tensor | None]:
        """Remove the hooks; return keys and float64 values on the device, or None if nothing was measured."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        while self._modes:
            self._attended()
        for name, loads in self._loads.items():
            self._found[ROUTER, name] = loads.max() / loads.sum().clamp(min=1)
        if not self._found:
            return (), None
        keys = tuple(self._found)
        device = self._found[keys[0]].device
        return keys, torch.stack([self._found[key].to(device, torch.float64) for key in keys])

    @torch.no_grad()
    def _activation(self, name: str, _module: nn.Module, _args: Any, output: Any) -> None:
        if (seen := _first(output)) is not None and seen.numel():
            self._note((ACTIVATION, name), torch.linalg.vector_norm(seen, math.inf).float())

    @torch.no_grad()
    def _router(self, name: str, experts: int, _module: nn.Module, _args: Any, output: Any) -> None:
        seen = _first(output, last=experts)
        if seen is None or not seen.numel():
            return
        chosen = seen.reshape(-1, experts).argmax(1)
        loads = (chosen[:, None] == torch.arange(experts, device=seen.device)).sum(0).double()
        self._loads[name] = loads + self._loads[name] if name in self._loads else loads

    def _attend(self, name: str, _module: nn.Module, _args: Any) -> None:
        entered = ExitStack()
        entered.enter_context(_Logits(partial(self._note, (ATTENTION, name))))
        self._modes.append(entered)

    def _attended(self, *_: Any) -> None:
        if self._modes:
            self._modes.pop().close()

    def _note(self, key: Key, value: Tensor) -> None:
        before = self._found.get(key)
        self._found[key] = value if before is None else torch.maximum(before, value)


class _Logits(TorchDispatchMode):
    """Observes the inputs of softmax and fused attention kernels."""

    def __init__(self, note: Callable[[Tensor], None]) -> None:
        TorchDispatchMode.__init__(self)
        self._note = note

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator unchanged, and look at its inputs."""
        out = func(*args, **(kwargs or {}))
        name: str = func._schema.name
        if name in ("aten::_softmax", "aten::_safe_softmax") and _plain(args[0]) and args[0].dim() > 2:
            self._note(args[0].amax().float())
        elif name.startswith("aten::_scaled_dot_product") and "backward" not in name and "choice" not in name:
            query, key = args[0], args[1]
            if _plain(query) and _plain(key) and query.dim() == 4 and query.numel() and key.numel():
                scale = (kwargs or {}).get("scale")
                self._note(_largest(query, key) * (scale or 1 / math.sqrt(query.shape[-1])))
        return out


def _largest(query: Tensor, key: Tensor) -> Tensor:
    """Largest product of some queries [B, H, Q, D] with all keys [B, G, K, D]; H is a multiple of G."""
    query = query[:, :, :: max(1, query.shape[2] // QUERIES)]
    if query.shape[1] != key.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return (query @ key.transpose(-1, -2)).amax().float()


def layers_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers in a model's outermost lists; without lists, every module with its own weights."""
    inside = ""
    found = False
    for name, module in model.named_modules():
        if inside and name.startswith(inside):
            continue
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module):
            inside = f"{name}." if name else ""
            for number, layer in module.named_children():
                if next(layer.parameters(), None) is not None:
                    found = True
                    yield f"{inside}{number}", layer
            if not name:
                return
    if not found:
        yield from ((name, each) for name, each in model.named_modules() if name and each._parameters)


def routers_of(model: nn.Module) -> Iterator[tuple[str, nn.Module, int]]:
    """Modules that choose between experts, with their count: siblings of `experts` with one row per expert."""
    for name, block in model.named_modules():
        experts = block._modules.get("experts")
        count = 0 if experts is None else _count(experts)
        if count < 2:
            continue
        for child, beside in block.named_children():
            if beside is experts:
                continue
            for path, module in beside.named_modules():
                weight = module._parameters.get("weight")
                if weight is not None and weight.dim() == 2 and weight.shape[0] == count:
                    yield ".".join(part for part in (name, child, path) if part), module, count


def attentions_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules with attention in their class name that contain no other such module."""
    named = [(name, each) for name, each in model.named_modules() if name and ATTENTIVE.search(type(each).__name__)]
    for name, module in named:
        if next(module.parameters(), None) is not None and not any(
            other.startswith(f"{name}.") and next(each.parameters(), None) is not None for other, each in named
        ):
            yield name, module


def spaced(found: Iterator[Any]) -> list[Any]:
    """At most ``MOST`` items, evenly spaced, including the last."""
    listed = list(found)
    if len(listed) <= MOST:
        return listed
    return [listed[round(place * (len(listed) - 1) / (MOST - 1))] for place in range(MOST)]


def _count(experts: nn.Module) -> int:
    if isinstance(experts, nn.ModuleList | nn.ModuleDict):
        return len(experts)
    return next((each.shape[0] for each in experts.parameters() if each.dim() == 3), 0)


def _plain(tensor: Any) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.is_floating_point()


def _first(output: Any, last: int | None = None) -> Tensor | None:
    """First plain floating-point tensor in a module's output, with the given last dimension if any."""
    items = output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else (output,)
    for item in items:
        if _plain(item) and (last is None or (item.dim() and item.shape[-1] == last)):
            found: Tensor = item
            return found
    return None
