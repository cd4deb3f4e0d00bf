"""run.json: what was launched, with which settings, on which device."""

from __future__ import annotations

import platform
from collections import Counter
from functools import cache
from importlib import metadata
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.autopsy.steps.surroundings import device_in_words
from stayfinite.core.policy import Policy
from stayfinite.core.records import VERSION
from stayfinite.measure.roster import Roster, whole_size

OF_INTEREST = (
    "stayfinite", "torch", "transformers", "accelerate", "peft", "lightning", "bitsandbytes", "numpy",
    "deepspeed", "megatron-core", "torchtitan", "ai2-olmo-core",
)  # fmt: skip
"""Packages whose versions are recorded."""


def launch_record(
    model: nn.Module,
    optimizer: Optimizer,
    roster: Roster,
    policy: Policy,
    max_norm: float | None,
    time: str,
    first_batch: str = "",
) -> dict[str, Any]:
    """Record of this launch."""
    record = {
        "time": time,
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "devices": sorted({device_in_words(device) for device, _ in roster.places}),
        "seed": torch.initial_seed(),
        "model": {
            "class": type(model).__name__,
            "parameters": sum(map(whole_size, model.parameters())),
            "trainable": sum(map(whole_size, roster.parameters)),
            "dtypes": dict(Counter(str(parameter.dtype).removeprefix("torch.") for parameter in roster.parameters)),
        },
        "optimizer": {
            "class": type(optimizer).__name__,
            "groups": [_settings(group) for group in optimizer.param_groups],
        },
        "max_norm": max_norm,
        "policy": policy.to_json(),
    }
    return record | {"data": {"first batch": first_batch}} if first_batch else record


def run_record(earlier: dict[str, Any], launch: dict[str, Any]) -> dict[str, Any]:
    """Add this launch to run.json; its other keys (recipe, config) stay."""
    launches = earlier.get("launches")
    return earlier | {"version": VERSION, "launches": [*(launches if isinstance(launches, list) else []), launch]}


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in OF_INTEREST:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in group.items() if isinstance(value, bool | int | float | str | tuple)}
    lr = group.get("lr")
    return plain | {"lr": lr if isinstance(lr, int | float) else str(lr), "tensors": len(group["params"])}
