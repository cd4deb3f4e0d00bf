"""A training state: everything needed to continue as if nothing had happened."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import StateError, StayfiniteError
from stayfinite.state.landing import HostMemory, Landing, bring_home, hold_before_step, settle
from stayfinite.state.likeness import check_likeness, check_schedule, check_values, restorable
from stayfinite.state.moments import Writes, check_groups, plan_optimizer, survey_optimizer
from stayfinite.state.parts import TrainingParts, finite_flag, is_finite, modules_with_more
from stayfinite.state.rng import capture_rng, restore_rng
from stayfinite.state.shards import Shard, local_part, shard_of
from stayfinite.state.tree import decode, encode


def scaler_state(parts: TrainingParts) -> dict[str, Any] | None:
    """The scaler's ``state_dict()`` without a sync; None without an enabled scaler."""
    scaler = parts.scaler
    if scaler is None or not scaler.is_enabled():
        return None
    if scaler._scale is None or scaler._growth_tracker is None:
        return scaler.state_dict()
    return {
        "scale": scaler._scale,
        "growth_factor": scaler.get_growth_factor(),
        "backoff_factor": scaler.get_backoff_factor(),
        "growth_interval": scaler.get_growth_interval(),
        "_growth_tracker": scaler._growth_tracker,
    }


def load_others(parts: TrainingParts, saved: dict[str, Any], *, rng: bool) -> None:
    """Load all parts with their own ``load_state_dict``, or none if one fails."""
    loads: list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]] = []
    if parts.scheduler is not None:
        loads.append(("scheduler", parts.scheduler.state_dict, parts.scheduler.load_state_dict, saved["scheduler"]))
    if parts.scaler is not None and parts.scaler.is_enabled() and saved["scaler"]:
        numbers = {k: v.item() if isinstance(v, Tensor) else v for k, v in saved["scaler"].items()}
        loads.append(("scaler", parts.scaler.state_dict, parts.scaler.load_state_dict, numbers))
    for name, module in modules_with_more(parts.model):
        loads.append((f"module {name}", module.get_extra_state, module.set_extra_state, saved["modules"].get(name)))
    for name, each in parts.extra.items():
        loads.append((name, each.state_dict, each.load_state_dict, saved["extra"][name]))
    if rng and saved["rng"] is not None:
        loads.append(("random number generators", capture_rng, restore_rng, saved["rng"]))
    done: list[tuple[Callable[[Any], Any], Any]] = []
    for name, now, load, new in loads:
        done.append((load, copy.deepcopy(now())))
        try:
            with torch.no_grad():
                load(copy.deepcopy(new))
        except Exception as error:
            for undo, before in reversed(done):
                undo(before)
            if isinstance(error, StayfiniteError):
                raise
            raise StateError(f"cannot load the saved state of the {name}: {type(error).__name__}: {error}") from error


VERSION = 1
"""Version of the tree."""

STEADY = ("model.", "optimizer.")
"""Tensors that change only in the optimizer's step; except buffers, which change in the forward pass."""

WATCHED = ("model.", "optimizer.", "ema.")
"""Tensors that must be finite."""

FLAG = "finite flag "


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingState:
    """A training state on the host; after a capture from CUDA the copy may still be in progress."""

    tree: dict[str, Any]
    """Everything but tensors, as plain JSON: names, optimizer settings, schedule, generators, notes."""

    tensors: dict[str, Tensor]
    """``model.NAME``, ``optimizer.state.NAME.KEY``, ``ema.NAME`` …; for sharded tensors, this rank's shard."""

    shards: dict[str, Shard] = field(default_factory=dict)
    """Positions of this rank's shards."""

    memory: HostMemory | None = None
    """Memory of captured tensors; a later capture reuses it unless it is held."""

    landing: Landing = field(default_factory=Landing)
    """The copy in progress."""

    flags: tuple[Tensor, ...] = ()
    """Whether the captured tensors are finite, computed on the devices and copied like the rest."""

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    @property
    def notes(self) -> dict[str, Any]:
        """Notes given to ``capture``."""
        notes = decode(self.tree.get("notes", {}), self.tensors)
        if not isinstance(notes, dict):
            raise StateError(
                f"the notes in the saved state are {notes!r:.60}, not a mapping",
                fix="resume from an older checkpoint: move this one away",
            )
        return copy.deepcopy(notes)

    def wait(self) -> None:
        """Wait until all of it is on the host."""
        self.landing.wait()

    def poisoned(self) -> list[str]:
        """Names of tensors and learning rates that are not finite; empty for a good state.

        Waits for the copy. Ignores buffers that were not finite when training began.
        """
        self.wait()
        if self.flags and all(bool(flag) for flag in self.flags):
            return self._poisoned_rates()
        exempt = set(self.tree["exempt"])
        watched = [name for name in self.tensors if name.startswith(WATCHED) and name not in exempt]
        return [name for name in watched if not is_finite(self.tensors[name])] + self._poisoned_rates()

    def _poisoned_rates(self) -> list[str]:
        # Non-finite floats are encoded as a marked dict.
        rates = [group.get("lr") for group in self.tree["optimizer"]["groups"]]
        return [f"optimizer.groups.{i}.lr" for i, lr in enumerate(rates) if isinstance(lr, dict) and lr["!"] == "float"]


def capture(
    parts: TrainingParts, *, memory: HostMemory | None = None, notes: Mapping[str, Any] | None = None
) -> TrainingState:
    """Copy the training state to the host, between two steps.

    Synchronous on the CPU. From CUDA the copy is in progress on return, and training may continue at once.

    Arguments:
        memory: host memory to reuse; its content is overwritten.
        notes: anything that ``encode`` takes, kept with the state but not restored: the step, a data position.

    Raises:
        StateError: something cannot be saved; the message says where it is.
    """
    parameters, buffers = parts.parameters(), parts.buffers()
    rest = encode(
        {
            "optimizer": survey_optimizer(parts.optimizer, parts.named()),
            "scheduler": None if parts.scheduler is None else parts.scheduler.state_dict(),
            "scaler": scaler_state(parts),
            "modules": {name: module.get_extra_state() for name, module in modules_with_more(parts.model)},
            "extra": {name: each.state_dict() for name, each in parts.extra.items()},
            "rng": capture_rng(),
            "notes": dict(notes or {}),
        }
    )
    tree = {
        "version": VERSION,
        "parameters": list(parameters),
        "buffers": list(buffers),
        "averages": list(parts.averages()),
        "exempt": sorted(parts.exempt),
        **({} if parts.keep_frozen else {"frozen": _frozen(parts)}),
        **rest.tree,
    }
    whole = {f"model.{name}": tensor for name, tensor in (parameters | buffers).items()}
    whole |= {f"ema.{name}": tensor for name, tensor in parts.averages().items()} | rest.tensors
    shards = {name: shard for name, tensor in whole.items() if (shard := _shard(name, tensor, parts)) is not None}
    live = {name: local_part(tensor) for name, tensor in whole.items()}
    changing = {f"model.{name}" for name in buffers} | {name for name in live if not name.startswith(STEADY)}
    flags = {f"{FLAG}{i}": flag for i, flag in enumerate(_flags(live, parts))}
    memory = memory or HostMemory()
    tensors, landing = bring_home(live | flags, memory, first=changing)
    hold_before_step(parts.optimizer, landing)
    return TrainingState(
        tree=tree,
        flags=tuple(tensors.pop(name) for name in flags),
        tensors=tensors,
        shards=shards,
        memory=memory,
        landing=landing,
    )


def restore(parts: TrainingParts, state: TrainingState, *, rng: bool = True) -> None:
    """Restore a captured or loaded state in place: live tensors keep their identity.

    Arguments:
        parts: the training; same architecture as the captured one.
        state: from ``capture`` or ``load``. It is not changed or referenced.
        rng: also restore the random number generators.

    Raises:
        StateError: it does not fit; the message names the differences. Nothing was changed.
    """
    state.wait()
    check_likeness(parts, state.tree, state.tensors)
    spread = {id(state.tensors[name]) for name in state.shards}
    saved = {
        name: decode(state.tree.get(name), state.tensors)
        for name in ("optimizer", "scheduler", "scaler", "modules", "extra", "rng")
    }
    parameters, named = restorable(parts, state.tree), parts.named()
    live = survey_optimizer(parts.optimizer, named)["groups"]
    check_groups(saved["optimizer"]["groups"], live)
    check_values(saved["optimizer"], live)
    check_schedule(saved["scheduler"], parts.scheduler)
    settle(parts.optimizer)
    writes = Writes()
    for name, tensor in (parameters | parts.buffers()).items():
        writes.copy(tensor, state.tensors[f"model.{name}"])
    for name, tensor in parts.averages().items():
        writes.copy(tensor, state.tensors[f"ema.{name}"])
    plan_optimizer(writes, parts.optimizer, named, saved["optimizer"], spread)
    load_others(parts, saved, rng=rng)
    writes.do()
    parts.keep(parameters)


def _shard(name: str, tensor: Tensor, parts: TrainingParts) -> Shard | None:
    if (shard := shard_of(tensor)) is not None or parts.writes is None:
        return shard
    return Shard(whole=tuple(tensor.shape), offset=(0,) * tensor.dim(), owner=parts.writes(name))


def _frozen(parts: TrainingParts) -> dict[str, Any]:
    """Record of the weights that are left out."""
    left_out = parts.left_out()
    return {"names": list(left_out), "mark": parts.frozen_mark.of(left_out)}


def _flags(live: Mapping[str, Tensor], parts: TrainingParts) -> tuple[Tensor, ...]:
    watched = [live[name] for name in live if name.startswith(WATCHED) and name not in parts.exempt]
    if not any(tensor.is_cuda for tensor in watched):
        # On the host the copy is checked on demand, off the training path.
        return ()
    return tuple(finite_flag(watched))
