"""Parts of a training with their own state_dict and load_state_dict."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import StateError, StayfiniteError
from stayfinite.state.parts import TrainingParts, modules_with_more
from stayfinite.state.rng import capture_rng, restore_rng


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
