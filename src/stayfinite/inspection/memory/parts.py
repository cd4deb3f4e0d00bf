"""The parts of a model in the order in which they run, each with its weights and with what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One step of the forward pass, and of the backward pass in reverse. Sizes in bytes."""

    name: str
    matrices: int = 0
    """Elements of weights that matrix products use, and that autocast therefore casts."""
    vectors: int = 0
    """Elements of other weights: norms, biases, tables."""
    table: int = 0
    """Elements of a lookup table whose gradient is dense, whatever was looked up."""
    shares_table: bool = False
    """The table is the output layer's matrix: it is counted there, and its second gradient is added to the first."""
    kept: int = 0
    """Kept for the backward pass in any case."""
    kept_for_weights: int = 0
    """Kept only for the gradients of this part's weights."""
    working: int = 0
    """Alive for a moment in this part's backward pass."""
    adapted: Sequence[tuple[int, int]] = ()
    """Matrices that adapters are put on, as (inputs, outputs)."""
    adapted_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Parts that are computed again together under gradient checkpointing."""

    parts: Sequence[Part]
    times: int = 1
    """How often the segment stands in a row."""
    entry: int = 0
    """What checkpointing keeps of it: its input. 0 for parts that are never checkpointed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCost:
    """What logits and loss hold, in bytes."""

    forward: int
    """At most, while the loss is computed."""
    kept: int
    """Between the passes."""
    backward: int
    """At most, when the backward pass begins."""
    handed_on: int
    """The gradient of the logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A model as a list of segments, and its loss."""

    segments: Sequence[Segment]
    loss: LossCost
    always: int = 0
    """Kept from the beginning to the end of a step: position biases, masks."""

    def parts(self) -> list[Part]:
        """All parts, each as often as it stands in the model."""
        return [part for segment in self.segments for _ in range(segment.times) for part in segment.parts]
