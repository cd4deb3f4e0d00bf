"""Replaying an incident: the model is built anew, the step put into it, the autopsy performed."""

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
        path: of the incident.
        build: ``module:function`` that gives model and forward; None for a run that names its recipe.
        world: run this one alone.
        device: where to run it; None for the kind of device that it was run on, if there is one here, else the CPU.
        seconds: after which no further world is begun.

    Returns:
        autopsy.json, and what a person has to know beside it.

    Raises:
        UsageError: the build, the world or the device cannot be had, or the forward pass does not take the batch.
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
    """The cause in the autopsy that an incident has, empty where it found none; None without one."""
    try:
        return str(json.loads((path / AUTOPSY).read_text(encoding="utf-8"))["cause"] or "")
    except (OSError, ValueError, KeyError, TypeError):
        return None  # there is none, or half of one


def _device(asked: str | None, incident: Incident) -> torch.device:
    if asked is None:
        before = incident.device.type
        return torch.device(before if before == "cuda" and torch.cuda.is_available() else "cpu")
    return named_device(asked)
