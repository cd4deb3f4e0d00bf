"""Parameter groups with which AdamW trains the rescaled network exactly as it would have trained the original."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from stayfinite.precision.surgery.result import Rescaled

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
