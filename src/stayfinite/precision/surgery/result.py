"""What a rescaling found and did, as plain data, and the parameter groups with which AdamW trains on as before."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import nn

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


RECORD = "rescale.json"


def matching_groups(
    model: nn.Module,
    rescaled: Rescaled | Mapping[str, int] | str | Path,
    *,
    lr: float,
    weight_decay: float = 0.0,
    eps: float = 1e-8,
) -> list[dict[str, Any]]:
    """Groups for `torch.optim.AdamW`: a weight that was multiplied by f learns at f times the rate.

    Adam moves every weight by about the learning rate, however large the weight is. A weight that is 32 times smaller
    would move 32 times as far. Its rate takes f, its weight decay and epsilon take 1/f, and all is as before.

    Arguments:
        model: the rescaled one.
        rescaled: the result of :func:`rescale`, its `parameters`, or the directory that the command wrote.
        lr: the rate of the original, as weight_decay and eps are.
    """
    exponents = _exponents(rescaled)
    parts: dict[int, list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts[exponents.get(name, 0)].append(parameter)
    return [
        {
            "params": parameters,
            "lr": lr * 2.0**exponent,
            "weight_decay": weight_decay * 2.0**-exponent,
            "eps": eps * 2.0**-exponent,
        }
        for exponent, parameters in sorted(parts.items())
    ]


def _exponents(rescaled: Rescaled | Mapping[str, int] | str | Path) -> Mapping[str, int]:
    if isinstance(rescaled, Rescaled):
        return rescaled.parameters
    if isinstance(rescaled, Mapping):
        return rescaled
    record = json.loads((Path(rescaled) / RECORD).read_text(encoding="utf-8"))
    return {str(name): int(exponent) for name, exponent in record["parameters"].items()}
