"""The measured parameters and their names."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from stayfinite.errors import ModelError, OptimizerError

SHOWN = 5
"""Names listed in an error before the rest is counted."""

Place = tuple[torch.device, torch.dtype]


@dataclass(frozen=True, slots=True)
class Roster:
    """Parameters of the optimizer in model order, grouped by place for fused passes."""

    parameters: tuple[nn.Parameter, ...]
    names: tuple[str, ...]
    places: dict[Place, tuple[int, ...]]
    """Parameter indices by device and dtype, in order of first appearance."""

    @property
    def device(self) -> torch.device:
        """Device on which the numbers of all parameters are combined."""
        return self.parameters[0].device


def take_roster(model: nn.Module, optimizer: torch.optim.Optimizer, *, partial: bool = False) -> Roster:
    """Match the optimizer's parameters with the model's names.

    Arguments:
        optimizer: provides the parameters; ``stands_for`` if it steps master weights.
        partial: whether other optimizers may hold the rest of the model's trainable parameters.

    Raises:
        ModelError: the model has no trainable parameter.
        OptimizerError: trainable parameters of the model are missing from the optimizer.
    """
    trainable = _plain_names(model)
    if not trainable:
        raise ModelError(
            f"{type(model).__name__} has no trainable parameters",
            fix="unfreeze parameters (parameter.requires_grad_(True)) before building the guard",
        )
    masters_of = getattr(optimizer, "stands_for", None)
    held = held_parameters(optimizer) if masters_of is None else dict.fromkeys(masters_of)
    missing = [name for p, name in trainable.items() if p not in held]
    if partial and len(missing) < len(trainable):
        trainable = {p: name for p, name in trainable.items() if p in held}
    elif missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise OptimizerError(
            f"the optimizer lacks {len(missing)} of {len(trainable)} trainable parameters: "
            f"{', '.join(missing[:SHOWN])}{more}",
            fix="build the optimizer after moving, wrapping or adding adapters to the model; or freeze the rest",
        )
    extra = [p for p in held if p not in trainable and p.requires_grad]
    named = trainable | {p: f"optimizer.extra.{i}" for i, p in enumerate(extra)}
    places: dict[Place, list[int]] = {}
    for index, parameter in enumerate(named):
        places.setdefault((parameter.device, parameter.dtype), []).append(index)
    return Roster(tuple(named), tuple(named.values()), {place: tuple(members) for place, members in places.items()})


def whole_size(parameter: nn.Parameter) -> int:
    """Elements of a parameter over all ranks; ZeRO-3 may leave none here."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def held_parameters(optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, None]:
    """The optimizer's parameters in order, without duplicates."""
    return dict.fromkeys(parameter for group in optimizer.param_groups for parameter in group["params"])


def _plain_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Trainable parameters by their original names, without wrapper prefixes."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(compiled := model._modules.get("_orig_mod"), nn.Module):
            model = compiled
        else:
            break
    return {p: name.replace("_orig_mod.", "") for name, p in model.named_parameters() if p.requires_grad}
