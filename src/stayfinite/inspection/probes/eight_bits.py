"""fp8 layers: those with unsupported dimensions, and those that need more bits."""

from __future__ import annotations

from typing import Any

from torch import nn

from stayfinite.autopsy.worlds.eight_bits import torchao_layers
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes
from stayfinite.rules.fp8_modules import MULTIPLE, is_head, is_router
from stayfinite.state.parts import unwrapped


def look(bench: Bench, notes: Notes) -> None:
    """Record the layers of torchao and Transformer Engine, if any."""
    model = unwrapped(bench.model)
    layers = _layers(model)
    if not layers:
        return
    where = f"{len(layers)} layers in fp8"
    shapes = {path: (layer.in_features, layer.out_features) for path, layer in layers.items()}
    unaligned = [
        f"{path} {list(sides)}"
        for path, sides in shapes.items()
        if any(side % MULTIPLE for side in sides) and not _emulated(layers[path])
    ]
    notes.saw("fp8.unaligned", unaligned, where)
    notes.saw("fp8.heads", [path for path in layers if is_head(path)], where)
    notes.saw("fp8.routers", [path for path in layers if is_router(path)], where)
    title = "fp8 layer sizes and roles"
    notes.check("Precision", title, "fp8-unaligned-dims", "fp8-sensitive-module", seen=where)


def _layers(model: nn.Module) -> dict[str, Any]:
    swapped = set(torchao_layers(model))
    return {
        path: module
        for path, module in model.named_modules()
        if path in swapped
        or (type(module).__module__.startswith("transformer_engine.") and hasattr(module, "in_features"))
    }


def _emulated(layer: Any) -> bool:
    """Whether products are computed in fp32, which supports every shape."""
    return bool(getattr(getattr(layer, "config", None), "emulate", False))
