"""Replay an incident: rebuild the model, load the step, perform the autopsy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.incidents.build import load_build
from stayfinite.autopsy.incidents.incident import Incident, read_incident
from stayfinite.autopsy.incidents.incident_files import AUTOPSY
from stayfinite.autopsy.incidents.rebuild import rebuild
from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.measure.device import named_device


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
