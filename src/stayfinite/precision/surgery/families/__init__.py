"""Architectures whose freedoms are known: one file a family."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from stayfinite.precision.surgery.families import bart, llama, t5
from stayfinite.precision.surgery.freedoms import Anatomy


class _Describes(Protocol):
    def __call__(self, model: nn.Module, *, untied: bool) -> Anatomy: ...


KNOWN: tuple[tuple[frozenset[str], _Describes], ...] = (
    (t5.TYPES, t5.anatomy),
    (llama.TYPES, llama.anatomy),
    (bart.TYPES, bart.anatomy),
)


def anatomy_of(model: nn.Module, *, untied: bool = False) -> Anatomy | None:
    """What is known of the model's architecture, by its config's `model_type`; None where nothing is.

    Arguments:
        untied: each use of a tied weight has a factor of its own, as when factors are applied in the forward pass.
    """
    kind = str(getattr(getattr(model, "config", None), "model_type", ""))
    return next((anatomy(model, untied=untied) for kinds, anatomy in KNOWN if kind in kinds), None)
