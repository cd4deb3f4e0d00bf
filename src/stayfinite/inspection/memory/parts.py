"""The parts of a model in execution order, with their weights and kept memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the forward pass; the backward pass runs them in reverse. Sizes in bytes."""

    name: str
    matrices: int = 0
    """Elements of matrix weights, which autocast casts."""
    vectors: int = 0
    """Elements of other weights: norms, biases, tables."""
    table: int = 0
    """Elements of an embedding, whose gradient is dense."""
    shares_table: bool = False
    """The table is the output matrix: counted there, and its second gradient is added to the first."""
    kept: int = 0
    """Always kept for the backward pass."""
    kept_for_weights: int = 0
    """Kept only for gradients of this part's weights."""
    working: int = 0
    """Temporary, in this part's backward pass."""
    adapted: Sequence[tuple[int, int]] = ()
    """Matrices with adapters, as (inputs, outputs)."""
    adapted_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Parts recomputed together under gradient checkpointing."""

    parts: Sequence[Part]
    times: int = 1
    """Number of repetitions."""
    entry: int = 0
    """What checkpointing keeps: the input. 0 if never checkpointed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCost:
    """Memory of logits and loss, in bytes."""

    forward: int
    """Peak while the loss is computed."""
    kept: int
    """Between the passes."""
    backward: int
    """Peak at the start of the backward pass."""
    handed_on: int
    """The gradient of the logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A model as a list of segments, and its loss."""

    segments: Sequence[Segment]
    loss: LossCost
    always: int = 0
    """Kept for the whole step: position biases, masks."""

    def parts(self) -> list[Part]:
        """All parts, with repetitions."""
        return [part for segment in self.segments for _ in range(segment.times) for part in segment.parts]
