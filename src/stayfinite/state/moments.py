"""An optimizer's state by parameter name, so that it fits however parameters are numbered, wrapped or sharded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.errors import StateError
from stayfinite.state.graft import Writes
from stayfinite.state.shards import is_spread, local_part, spread_like

WAYS = frozenset({"fused", "foreach", "capturable", "differentiable"})
"""Settings of a group that choose how the same step is computed. They belong to the process, not to the state."""


def survey_optimizer(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """The optimizer's living state, not copied.

    ``state`` is by parameter name, ``shared`` is what it keeps under other keys, ``groups`` are its parameter groups.
    """
    names = {id(p): name for name, p in parameters.items()}
    by_name = {names[id(key)]: each for key, each in optimizer.state.items() if id(key) in names}
    return {
        # Entries that were only looked up and never filled would come and go at random.
        "state": {name: by_name[name] for name in parameters if by_name.get(name)},
        "shared": {key: each for key, each in optimizer.state.items() if isinstance(key, str | int)},
        "groups": [
            {key: value if key != "params" else [names[id(p)] for p in value] for key, value in group.items()}
            for group in optimizer.param_groups
        ],
    }


def check_groups(saved: list[dict[str, Any]], live: list[dict[str, Any]]) -> None:
    """Refuse an optimizer whose groups hold other parameters.

    Raises:
        StateError: the message says which group differs and in what.
    """
    if len(saved) != len(live):
        raise StateError(
            f"the saved optimizer has {len(saved)} parameter groups, this one {len(live)}",
            fix="build the optimizer with the same groups as in the run that was saved",
        )
    for index, (theirs, ours) in enumerate(zip(saved, live, strict=True)):
        if theirs["params"] != ours["params"]:
            odd = sorted(set(theirs["params"]) ^ set(ours["params"]))
            what = f"first {odd[0]}, {len(odd)} in all" if odd else "the same ones in another order"
            raise StateError(
                f"parameter group {index} of the saved optimizer holds other parameters than this one: {what}",
                fix="build the optimizer with the same groups as in the run that was saved",
            )


def plan_optimizer(
    writes: Writes, optimizer: Optimizer, parameters: Mapping[str, Tensor], saved: dict[str, Any], spread: set[int]
) -> None:
    """Plan the optimizer's state to become the saved one.

    Tensors that fit keep their identity and their device, state that was not there when it was saved is removed, and
    what is missing is made where torch would have made it.

    Arguments:
        saved: what ``survey_optimizer`` gave, with tensors on the host.
        spread: the ``id`` of each saved tensor that is a rank's part of a sharded one.
    """
    made: dict[tuple[int, torch.device], Tensor] = {}
    fused = {
        id(p): bool(group.get("fused") or group.get("capturable"))
        for group in optimizer.param_groups
        for p in group["params"]
    }

    def fresh_for(parameter: Tensor | None, key: str, tensor: Tensor) -> Tensor:
        # torch keeps step counters on the host, except where a kernel on the device reads them.
        stays = parameter is None or (key == "step" and not fused.get(id(parameter), False))
        device = torch.device("cpu") if stays or parameter is None else local_part(parameter).device
        if (id(tensor), device) not in made:
            copy = tensor.to(device, copy=True)
            if id(tensor) in spread and parameter is not None and is_spread(parameter):
                copy = spread_like(copy, parameter)
            made[id(tensor), device] = copy
        return made[id(tensor), device]

    for name, p in parameters.items():
        live = optimizer.state.get(p)
        if name not in saved["state"]:
            if live is not None:
                writes.assign(lambda p=p: optimizer.state.pop(p, None))  # type: ignore[misc]
            continue
        old = live if isinstance(live, dict) else {}
        new = {
            key: writes.graft(old.get(key), each, lambda t, p=p, key=key: fresh_for(p, key, t))  # type: ignore[misc]
            for key, each in saved["state"][name].items()
        }
        if live is None:
            writes.assign(lambda p=p, new=new: optimizer.state.__setitem__(p, new))  # type: ignore[misc]
        else:
            writes.replace(live, new)
    for key, each in saved["shared"].items():
        value = writes.graft(optimizer.state.get(key), each, lambda t: fresh_for(None, "", t))
        writes.assign(lambda key=key, value=value: optimizer.state.__setitem__(key, value))  # type: ignore[misc]
    for group, theirs in zip(optimizer.param_groups, saved["groups"], strict=True):
        for key, each in theirs.items():
            if key == "params" or (key in WAYS and key in group):
                continue
            value = writes.graft(group.get(key), each, lambda t, g=group: fresh_for(g["params"][0], "", t))  # type: ignore[misc]
            writes.assign(lambda g=group, key=key, value=value: g.__setitem__(key, value))  # type: ignore[misc]
