"""What a rescaling found and did, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["nothing to do", "rescaled", "partly", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One freedom that was used."""

    freedom: str
    exponent: int
    """Of two."""
    because: str
    """The activation that asked for it."""
    largest: float
    """Its size before."""
    nearly: bool = False
    """The norms' epsilon could not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Something that still leaves fp16's range."""

    module: str
    largest: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A few steps of training."""

    network: str
    """`original`, `rescaled` or `kept`, with :func:`keep_in_range`."""
    precision: str
    steps: int
    """Updates that were taken."""
    overflows: int
    """Steps whose forward pass was not finite: no loss scale helps."""
    skipped: int
    """Steps that the scaler skipped for their gradients alone, while it looked for a scale."""
    first_loss: float | None
    last_loss: float | None
    scale: float | None = None
    """Loss scale at the end."""
    last_skip: int | None = None
    """The step at which the scaler skipped last."""
    scaled: int = 0
    """Layers of a kept network that came near the limit."""


@dataclass(slots=True, kw_only=True)
class Rescaled:
    """The result of :func:`rescale`."""

    verdict: Verdict
    architecture: str
    share: float
    limit: float
    largest_before: float
    largest_after: float
    modules: Mapping[str, tuple[float, float]]
    """Module -> its largest input or output, before and after."""
    changes: Sequence[Change] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
    """Parameter -> the exponent of two that it was multiplied with."""
    logits_difference: float = 0.0
    """Largest difference over the largest value, in fp32."""
    loss_difference: float = 0.0
    """Relative, in fp32."""
    lost_before: float = 0.0
    """Share of activations that fp16 rounds to 0."""
    lost_after: float = 0.0
    lost_weights_before: float = 0.0
    lost_weights_after: float = 0.0
    overflows_before: Mapping[str, float] = field(default_factory=dict)
    """Where one step under fp16 autocast overflows: `operator in module` -> its size in fp32."""
    overflows_after: Mapping[str, float] = field(default_factory=dict)
    obstacles: Sequence[Obstacle] = ()
    refused: str = ""
    """Why a freedom was not used though it would have helped."""
    trials: Sequence[Trial] = ()
    data: str = ""
    """What it was measured on."""

    @property
    def keep_in_fp32(self) -> list[str]:
        """The modules to keep in fp32, because nothing else helps."""
        return list(dict.fromkeys(obstacle.module for obstacle in self.obstacles))

    def to_json(self) -> dict[str, Any]:
        """Plain data, for `rescale.json`."""
        return asdict(self) | {"keep_in_fp32": self.keep_in_fp32}
