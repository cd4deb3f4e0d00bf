"""Load an incident into a rebuilt model, ready to run the step again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.incidents.build import load_build
from stayfinite.autopsy.incidents.incident_files import AUTOPSY, Incident, read_incident
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.surroundings import form_of, is_compiled
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.errors import StateError, StayfiniteError, UsageError
from stayfinite.measure.device import named_device
from stayfinite.state.likeness import some
from stayfinite.state.moments import Writes, plan_optimizer
from stayfinite.state.parts import buffers_of, plain_name, unwrapped
from stayfinite.state.reading import load

OTHER_FORM = "build() must return the trained model: same configuration, dtype and adapters"


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A step that can be run again, material to explain it, and notes for the user."""

    step: Step
    materials: Materials
    notes: list[str] = field(default_factory=list)


def rebuild(
    incident: Incident, model: nn.Module, forward: Callable[[Any], Tensor], device: torch.device | None = None
) -> Rebuilt:
    """Load an incident into a model.

    Arguments:
        incident: from ``read_incident``.
        model: same architecture; its weights are replaced, and it is moved to the device.
        forward: ``forward(batch) -> loss``, using that model.
        device: where to run; None for the model's device.

    Raises:
        StateError: the model differs from that of the incident, or the incident is damaged.
    """
    if device is not None:
        model.to(device)
    inner = unwrapped(model)
    device = device or next((p.device for p in inner.parameters()), torch.device("cpu"))
    notes = [f"missing from the batch: {each}" for each in incident.record["batch"].get("left_out", [])]
    weights = _weights(incident, notes)
    if weights is not None:
        left_out = frozenset(map(str, incident.record["weights"].get("left_out", ())))
        load_weights(inner, weights, incident.path, left_out)
        if left_out:
            notes.append(f"{len(left_out)} frozen tensors come from build(): the run did not save them")
    _set_modes(inner, incident.record.get("modules") or {})
    precision = incident.record["precision"]
    step = Step(
        model=inner,
        forward=forward,
        batch=incident.batch(device),
        rng=incident.rng(),
        scale=float(precision.get("scale") or 1.0),
        autocast=autocast_for(device.type, precision.get("autocast")),
    )
    materials = Materials(
        good_weights=incident.good_weights(),
        optimizer=_optimizer(incident, inner, notes) if weights is not None else None,
        spike_limit=incident.record.get("spike_limit"),
        trigger=incident.trigger,
        compiled=is_compiled(model),
        device=incident.device.type,
        notes=dict(incident.record.get("notes") or {}) | {"rebuilt": "in another process, with build()"},
    )
    return Rebuilt(step=step, materials=materials, notes=notes)


def autocast_for(device: str, dtype: str | None) -> Callable[[], AbstractContextManager[Any]]:
    """The autocast around the forward pass, for a device type."""
    if dtype is None:
        return nullcontext
    return partial(torch.autocast, device, dtype=getattr(torch, dtype))


@torch.no_grad()
def load_weights(
    model: nn.Module, weights: Mapping[str, Tensor], source: Path, left_out: frozenset[str] = frozenset()
) -> None:
    """Load saved weights into a model, all or none.

    Arguments:
        left_out: names of tensors that need not be saved.

    Raises:
        StateError: names, shapes or dtypes differ; the message says which.
    """
    live = {plain_name(name): p for name, p in model.named_parameters()} | dict(buffers_of(model))
    missing, unknown = sorted(set(live) - set(weights) - left_out), sorted(set(weights) - set(live))
    odd = [
        f"{name} (saved {form_of(weights[name])}, built {form_of(tensor)})"
        for name, tensor in live.items()
        if name in weights and (weights[name].shape != tensor.shape or weights[name].dtype != tensor.dtype)
    ]
    words = []
    if missing:
        words.append(f"{len(missing)} tensors of the built model are not in it: {some(missing)}")
    if unknown:
        words.append(f"{len(unknown)} of its tensors are not in the built model: {some(unknown)}")
    if odd:
        words.append(f"{len(odd)} differ in shape or dtype: {some(odd)}")
    if words:
        raise StateError(f"the weights of {source} do not fit the built model: {'; '.join(words)}", fix=OTHER_FORM)
    for name, tensor in live.items():
        if name in weights:
            tensor.copy_(weights[name])


def _weights(incident: Incident, notes: list[str]) -> dict[str, Tensor] | None:
    """Weights from the incident or the checkpoint it names; None to use the model's own."""
    about = incident.record["weights"]
    written = incident.weights()
    if about.get("later"):
        notes.append(f"the weights are {about['later']} steps newer than the refused step")
    if written is not None:
        return written
    if named := about.get("checkpoint"):
        path = incident.path.parent.parent / str(named)
        try:
            state = load(path)
        except StateError as error:
            notes.append(f"the weights were too large to save, and the checkpoint cannot be used: {error.message}")
        else:
            notes.append(f"weights from {named}, the newest checkpoint before the refused step")
            return {
                name.removeprefix("model."): tensor
                for name, tensor in state.tensors.items()
                if name.startswith("model.")
            }
    notes.append("weights from build(): the incident holds none")
    return None


def _set_modes(model: nn.Module, tree: Mapping[str, Any]) -> None:
    modes = {each["path"]: bool(each["training"]) for each in tree.get("modules", [])}
    for path, module in model.named_modules():
        if (training := modes.get(plain_name(path))) is not None:
            module.training = training


def _optimizer(incident: Incident, model: nn.Module, notes: list[str]) -> Optimizer | None:
    """An optimizer with the saved state, if it is one of torch's own."""
    saved = incident.optimizer_state()
    about = incident.record.get("optimizer") or {}
    module, _, name = str(about.get("class", "")).rpartition(".")
    kind: Any = getattr(torch.optim, name, None) if module.startswith("torch.optim.") else None
    if saved is None or not isinstance(kind, type):
        return None
    live = {plain_name(each): p for each, p in model.named_parameters()}
    try:
        groups = [{"params": [live[each] for each in group["params"]]} for group in saved["groups"]]
        optimizer = kind(groups, lr=0.0)
        if not isinstance(optimizer, Optimizer):
            return None
        writes = Writes()
        plan_optimizer(writes, optimizer, live, saved, set())
        writes.do()
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        notes.append(f"the optimizer state cannot be loaded: {type(error).__name__}: {error}")
        return None
    return optimizer


def replay(
    path: Path, *, build: str | None, world: str | None = None, device: str | None = None, seconds: float = 600.0
) -> tuple[dict[str, Any], list[str]]:
    """Run an incident again.

    Arguments:
        build: ``module:function`` that returns model and forward; None for a run that names its recipe.
        device: where to run; None for the original type of device if available, else the CPU.
        seconds: after which no further world is started.

    Returns:
        autopsy.json, and notes for the user.

    Raises:
        UsageError: build, world or device is not available, or the forward pass does not accept the batch.
        StateError: the incident is damaged, or of another model.
    """
    incident = read_incident(path)
    if not incident.record["batch"].get("written", True):
        raise UsageError(
            f"{path} holds no batch: it was too large", fix="raise Policy.incident_megabytes and run again"
        )
    place = _device(device, incident)
    model, forward = load_build(build, path)
    rebuilt = rebuild(incident, model, forward, place)
    try:
        found = perform(rebuilt.step, rebuilt.materials, seconds, world)
    except StayfiniteError:
        raise
    except Exception as error:
        raise UsageError(
            f"the forward pass failed in the re-run: {type(error).__name__}: {error}",
            fix="forward(batch) must accept the batch of the incident and use the model that build() returned",
        ) from error
    return found.to_json(), list(rebuilt.notes)


def earlier_cause(path: Path) -> str | None:
    """Cause in an incident's existing autopsy, empty if it found none; None without an autopsy."""
    try:
        return str(json.loads((path / AUTOPSY).read_text(encoding="utf-8"))["cause"] or "")
    except (OSError, ValueError, KeyError, TypeError):
        return None  # missing or incomplete


def _device(asked: str | None, incident: Incident) -> torch.device:
    if asked is None:
        before = incident.device.type
        return torch.device(before if before == "cuda" and torch.cuda.is_available() else "cpu")
    return named_device(asked)
