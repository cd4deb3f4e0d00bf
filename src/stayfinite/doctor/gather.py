"""Combine all modules and loose trainable tensors of a step into one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from stayfinite.doctor.moments import Backward
from stayfinite.doctor.record import Program


class Together(nn.Module):
    """Several modules, and tensors outside any module, as one.

    Arguments:
        modules: by name.
        loose: trainable leaf tensors, by name.
    """

    def __init__(self, modules: dict[str, nn.Module], loose: dict[str, Tensor]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name.replace(".", "_"), module)
        self._loose = loose
        self.training = any(module.training for module in modules.values()) or not modules

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Parameters of the modules, then the loose tensors."""
        yield from super().named_parameters(prefix, recurse, remove_duplicate)
        for name, tensor in self._loose.items():
            yield f"{prefix}.{name}" if prefix else name, tensor


def whole_model(program: Program, backward: Backward) -> nn.Module:
    """Everything the program trains, as one module."""
    names = names_in(backward)
    modules: dict[str, nn.Module] = {}
    for seen in program.models.values():
        modules.setdefault(names.get(id(seen.module), f"model{len(modules)}"), seen.module)
    for held in backward.at.frames:
        for name, value in held.names.items():
            for key, each in _modules_in(name, value):
                if each is not None and not any(each is known for known in modules.values()):
                    modules.setdefault(key, each)
    whole = modules.values()
    modules = {name: module for name, module in modules.items() if not inside_another(module, whole)}
    inside = {id(p) for module in modules.values() for p in module.parameters()}
    loose: dict[str, Tensor] = {}
    for seen_optimizer in program.optimizers.values():
        for p in seen_optimizer.parameters:
            if id(p) not in inside and all(p is not other for other in loose.values()):
                loose[names.get(id(p), f"parameter{len(loose)}")] = p
    for held in backward.at.frames:
        for name, value in held.names.items():
            values = value if isinstance(value, list | tuple) and len(value) <= 64 else [value]
            for each in values:
                learns = isinstance(each, Tensor) and each.requires_grad and each.is_leaf and id(each) not in inside
                if learns and all(each is not other for other in loose.values()):
                    loose[name if name not in loose else f"{name}{len(loose)}"] = each
    if len(modules) == 1 and not loose:
        return next(iter(modules.values()))
    return Together(modules, loose)


def names_in(backward: Backward) -> dict[int, str]:
    """The program's names for its modules and tensors, by ``id``."""
    names: dict[int, str] = {}
    for held in reversed(backward.at.frames):
        for name, value in held.names.items():
            if isinstance(value, nn.Module | Tensor):
                names[id(value)] = name
            elif name == "self" or type(value).__module__ == held.everywhere.get("__name__"):
                before = "" if name == "self" else f"{name}."
                attributes = getattr(value, "__dict__", {})
                names.update(
                    {id(v): f"{before}{k}" for k, v in attributes.items() if isinstance(v, nn.Module | Tensor)}
                )
    return names


def _modules_in(name: str, value: Any) -> list[tuple[str, nn.Module]]:
    if isinstance(value, nn.Module):
        return [(name, value)]
    if name == "self":
        return [(k, v) for k, v in getattr(value, "__dict__", {}).items() if isinstance(v, nn.Module)]
    return []


def inside_another(module: nn.Module, modules: Iterable[nn.Module]) -> bool:
    """Whether a module is part of another one of these."""
    return any(other is not module and any(part is module for part in other.modules()) for other in modules)
