"""Optimizer state by parameter name, independent of numbering, wrapping and sharding."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.errors import StateError
from stayfinite.state.shards import is_spread, local_part, spread_like

Fresh = Callable[[Tensor], Tensor]
"""Creates a tensor where there is none yet."""


class Writes:
    """Planned writes. Planning allocates and may fail; executing only copies and assigns."""

    def __init__(self) -> None:
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._assignments: list[Callable[[], object]] = []

    def copy(self, live: Tensor, saved: Tensor) -> None:
        """Copy over a live tensor of the same shape; for a sharded one, over this rank's shard."""
        self._copies.append((local_part(live), saved))

    def put(self, live: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Set an entry of a live mapping, after all copies."""
        self._assignments.append(partial(operator.setitem, live, key, value))

    def drop(self, live: MutableMapping[Any, Any], key: object) -> None:
        """Remove an entry of a live mapping, after all copies."""
        self._assignments.append(partial(live.pop, key, None))

    def replace(self, live: dict[Any, Any], new: dict[Any, Any]) -> None:
        """Replace the content of a live dict, after all copies."""

        def act() -> None:
            live.clear()
            live.update(new)

        self._assignments.append(act)

    def graft(self, live: Any, saved: Any, fresh: Fresh) -> Any:
        """Plan ``live`` to become equal to ``saved``; return the object to use in its place.

        Matching tensors, dicts and lists keep their identity; others are created.
        """
        if isinstance(saved, Tensor):
            if isinstance(live, Tensor) and fits(live, saved):
                self.copy(live, saved)
                return live
            return fresh(saved)
        if isinstance(live, Tensor) and live.numel() == 1 and type(saved) in (int, float):
            # A learning rate tensor stays on its device, whatever kind of number was saved.
            self.copy(live, torch.full_like(local_part(live), saved, device="cpu"))
            return live
        if isinstance(saved, dict):
            of = live if isinstance(live, dict) else {}
            new = {key: self.graft(of.get(key), each, fresh) for key, each in saved.items()}
            if not isinstance(live, dict):
                return new
            self.replace(live, new)
            return live
        if isinstance(saved, list | tuple):
            like = live if isinstance(live, list | tuple) and len(live) == len(saved) else [None] * len(saved)
            items = [self.graft(a, b, fresh) for a, b in zip(like, saved, strict=True)]
            return tuple(items) if isinstance(saved, tuple) else items
        return saved

    @torch.no_grad()
    def do(self) -> None:
        """Execute all writes, and wait for them."""
        for live, saved in self._copies:
            live.copy_(saved, non_blocking=True)
        for act in self._assignments:
            act()
        for device in {live.device for live, _ in self._copies if live.is_cuda}:
            torch.cuda.current_stream(device).synchronize()


def fits(live: Tensor, saved: Tensor) -> bool:
    """Whether shapes and dtypes match."""
    part = local_part(live)
    return part.shape == saved.shape and part.dtype == saved.dtype


WAYS = frozenset({"fused", "foreach", "capturable", "differentiable"})
"""Group settings that choose an implementation of the same step. They belong to the process, not to the state."""


def survey_optimizer(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """The optimizer's live state, not copied.

    ``state`` is by parameter name, ``shared`` is what it keeps under other keys, ``groups`` are its parameter groups.
    """
    names = {id(p): name for name, p in parameters.items()}
    by_name = {names[id(key)]: each for key, each in optimizer.state.items() if id(key) in names}
    return {
        # Entries that were looked up but never filled are omitted.
        "state": {name: by_name[name] for name in parameters if by_name.get(name)},
        "shared": {key: each for key, each in optimizer.state.items() if isinstance(key, str | int)},
        "groups": [
            {key: value if key != "params" else [names[id(p)] for p in value] for key, value in group.items()}
            for group in optimizer.param_groups
        ],
    }


def check_groups(saved: list[dict[str, Any]], live: list[dict[str, Any]]) -> None:
    """Reject an optimizer whose groups hold other parameters.

    Raises:
        StateError: the message says which group differs and how.
    """
    if len(saved) != len(live):
        raise StateError(
            f"the saved optimizer has {len(saved)} parameter groups, this one {len(live)}",
            fix="build the optimizer with the same groups as the saved run",
        )
    for index, (theirs, ours) in enumerate(zip(saved, live, strict=True)):
        if theirs["params"] != ours["params"]:
            odd = sorted(set(theirs["params"]) ^ set(ours["params"]))
            what = f"first {odd[0]}, {len(odd)} in total" if odd else "the same ones in another order"
            raise StateError(
                f"parameter group {index} differs from the saved optimizer: {what}",
                fix="build the optimizer with the same groups as the saved run",
            )


def plan_optimizer(
    writes: Writes, optimizer: Optimizer, parameters: Mapping[str, Tensor], saved: dict[str, Any], spread: set[int]
) -> None:
    """Plan the optimizer's state to become the saved one.

    Matching tensors keep their identity and device, extra state is removed, and missing state is created where torch
    would create it.

    Arguments:
        saved: from ``survey_optimizer``, with tensors on the host.
        spread: ``id`` of each saved tensor that is a shard.
    """
    new = _NewTensors(optimizer, spread)
    for name, parameter in parameters.items():
        live = optimizer.state.get(parameter)
        if name not in saved["state"]:
            if live is not None:
                writes.drop(optimizer.state, parameter)
            continue
        old = live if isinstance(live, dict) else {}
        entries = {
            key: writes.graft(old.get(key), each, partial(new.beside, parameter, key))
            for key, each in saved["state"][name].items()
        }
        if live is None:
            writes.put(optimizer.state, parameter, entries)
        else:
            writes.replace(live, entries)
    for key, each in saved["shared"].items():
        writes.put(optimizer.state, key, writes.graft(optimizer.state.get(key), each, new.on_the_host))
    for group, theirs in zip(optimizer.param_groups, saved["groups"], strict=True):
        fresh = partial(new.beside, group["params"][0], "") if group["params"] else new.on_the_host
        for key, each in theirs.items():
            if key == "params" or (key in WAYS and key in group):
                continue
            writes.put(group, key, writes.graft(group.get(key), each, fresh))


class _NewTensors:
    """Creates missing state where torch would; one copy of each saved tensor per device."""

    def __init__(self, optimizer: Optimizer, spread: set[int]) -> None:
        self._spread = spread
        self._made: dict[tuple[int, torch.device], Tensor] = {}
        self._fused = {
            id(parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if group.get("fused") or group.get("capturable")
        }

    def on_the_host(self, saved: Tensor) -> Tensor:
        """For state without a parameter."""
        return self._on(torch.device("cpu"), saved, None)

    def beside(self, parameter: Tensor, key: str, saved: Tensor) -> Tensor:
        """For an entry in the state of a parameter or its group."""
        # torch keeps step counters on the host, unless a device kernel reads them.
        if key == "step" and id(parameter) not in self._fused:
            return self._on(torch.device("cpu"), saved, parameter)
        return self._on(local_part(parameter).device, saved, parameter)

    def _on(self, device: torch.device, saved: Tensor, parameter: Tensor | None) -> Tensor:
        if (id(saved), device) not in self._made:
            copy = saved.to(device, copy=True)
            if id(saved) in self._spread and parameter is not None and is_spread(parameter):
                copy = spread_like(copy, parameter)
            self._made[id(saved), device] = copy
        return self._made[id(saved), device]
