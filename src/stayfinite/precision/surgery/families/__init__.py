"""Architectures whose freedoms are known: one file a family."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from stayfinite.precision.surgery.families import bart, llama, t5
from stayfinite.precision.surgery.freedoms import Anatomy

KNOWN: tuple[tuple[frozenset[str], Callable[[nn.Module], Anatomy]], ...] = (
    (t5.TYPES, t5.anatomy),
    (llama.TYPES, llama.anatomy),
    (bart.TYPES, bart.anatomy),
)


def anatomy_of(model: nn.Module) -> Anatomy | None:
    """What is known of the model's architecture, by its config's `model_type`; None where nothing is."""
    kind = str(getattr(getattr(model, "config", None), "model_type", ""))
    return next((anatomy(model) for kinds, anatomy in KNOWN if kind in kinds), None)
