"""Memory of optimizer states and steps."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from stayfinite.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCost:
    """The memory of one optimizer."""

    name: str
    moments: float = 0.0
    """States per weight, in the weight's dtype."""
    quantised: bool = False
    """Two 1-byte states for matrices; embeddings and small weights keep two of 4 bytes."""
    copies: float = 0.0
    """Temporary copies of all weights in a step."""
    copies_of_largest: float = 0.0
    """Temporary fp32 copies of one weight at a time."""

    def state(self, *, matrices: int, tables: int, vectors: int, stored: int) -> int:
        if self.quantised:
            # One fp32 scale per 256 elements of each state.
            return int(matrices * 2 * (1 + 4 / 256)) + 8 * (tables + vectors)
        return int(self.moments * (matrices + tables + vectors) * stored)

    def step(self, *, weights: int, largest: int, stored: int) -> int:
        """Bytes that a step needs beyond weights, gradients and states."""
        return int(self.copies * weights * stored + self.copies_of_largest * largest * 4)


OPTIMIZERS = {
    cost.name: cost
    for cost in (
        # torch's default on CUDA updates all weights at once and holds all denominators.
        OptimizerCost(name="adamw", moments=2.0, copies=1.0),
        OptimizerCost(name="adamw-fused", moments=2.0),
        OptimizerCost(name="adamw-8bit", quantised=True),
        # Only rows and columns of the second moment; updates one weight at a time in fp32.
        OptimizerCost(name="adafactor", moments=0.004, copies_of_largest=3.0),
        OptimizerCost(name="sgd", moments=1.0),
        OptimizerCost(name="sgd-plain"),
        OptimizerCost(name="lion", moments=1.0, copies_of_largest=2.0),
    )
}

_ALSO = {
    "adam": "adamw",
    "adamw-torch": "adamw",
    "adamw-torch-fused": "adamw-fused",
    "fused": "adamw-fused",
    "adamw-bnb-8bit": "adamw-8bit",
    "paged-adamw-8bit": "adamw-8bit",
    "adam-8bit": "adamw-8bit",
    "adam8bit": "adamw-8bit",
    "adamw8bit": "adamw-8bit",
    "sgd-momentum": "sgd",
}


def optimizer_named(text: str) -> OptimizerCost:
    """An optimizer by its name, in transformers' spelling or ours. Raises UsageError if the name is unknown."""
    key = text.strip().lower().replace("_", "-")
    cost = OPTIMIZERS.get(_ALSO.get(key, key))
    if cost is not None:
        return cost
    close = difflib.get_close_matches(key, [*OPTIMIZERS, *_ALSO], n=1)
    raise UsageError(
        f"--optimizer {text!r} is unknown" + (f"; did you mean {close[0]}?" if close else ""),
        fix=f"one of {', '.join(OPTIMIZERS)}; choose one with as many states per weight",
    )
