"""Run directories as a guard leaves them, planted without training: plain ones, long ones, hostile ones."""

from __future__ import annotations

import json
import math
import random
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stayfinite.guard.telling.layers import Layers

TIME = "2026-01-02T03:04:05.000+00:00"


def plant_run(
    directory: Path,
    *,
    steps: int = 120,
    vetoes: tuple[int, ...] = (40, 41, 90),
    names: tuple[str, ...] = ("encoder.wi.weight", "encoder.wo.weight", "decoder.wo.weight"),
    incident: dict[str, Any] | None = None,
    autopsy: dict[str, Any] | None = None,
    looks: int = 12,
    signals: Callable[[int], dict[str, float]] | None = None,
) -> Path:
    """A run of so many steps, with layers, two checkpoints, and an incident where one is given."""
    directory.mkdir(parents=True, exist_ok=True)
    noise = random.Random(7)
    events = [event("start", 0)]
    lines = []
    for step in range(1, steps + 1):
        bad = step in vetoes
        loss = math.nan if bad else 6 * math.exp(-step / steps * 3) + 0.4 + noise.gauss(0, 0.03)
        line = {
            "version": 1, "step": step, "loss": loss, "grad_norm": math.inf if bad else math.exp(noise.gauss(0, 0.3)),
            "lr": 1e-3 * min(1.0, step / 10), "loss_scale": 1024.0, "decision": "veto" if bad else "accept",
            "code": "loss-not-finite" if bad else "finite",
        }  # fmt: skip
        lines.append(line if signals is None else line | {"signals": signals(step)})
        if bad:
            events.append(
                event("veto", step, code="loss-not-finite", reason="loss is nan; 1 of 3 gradients is not finite")
            )
        if step in (steps // 3, steps // 3 * 2):
            events.append(event("checkpoint", step, path=f"checkpoints/step-{step:08d}"))
    events.append(event("closed", steps, reason="the guard is closed", memory={"host, the whole process": 512 << 20}))
    write_lines(directory / "steps.jsonl", lines)
    write_lines(directory / "events.jsonl", events)
    launch = {
        "time": TIME, "versions": {"python": "3.11.7", "torch": "2.13.0"}, "platform": "Linux", "devices": ["cpu"],
        "seed": 1, "model": {"class": "Net", "parameters": 484, "trainable": 484, "dtypes": {"float32": 6}},
        "optimizer": {"class": "AdamW", "groups": [{"lr": 0.001, "tensors": 6}]}, "max_norm": 1.0,
        "policy": {"mode": "protect"}, "data": {"first batch": "float32[32, 8]"},
    }  # fmt: skip
    (directory / "run.json").write_text(json.dumps({"version": 1, "launches": [launch]}))
    plant_layers(directory / "layers.npz", names, looks, every=max(1, steps // looks))
    if incident is not None:
        place = directory / "incidents" / "0001"
        place.mkdir(parents=True)
        (place / "incident.json").write_text(json.dumps(incident))
        if autopsy is not None:
            (place / "autopsy.json").write_text(json.dumps(autopsy))
    return directory


def plant_layers(
    path: Path, names: tuple[str, ...], looks: int, *, every: int = 10, broken: int = 3, start: int = 0
) -> None:
    """Looks at these parameters; the second one is not finite from one look on, the third has no gradient."""
    layers = Layers()
    for look in range(looks):
        table = array("d")
        for place in range(min(2, len(names))):
            bad = place == 1 and look >= looks - broken
            norm = math.nan if bad else 0.1 * (place + 1) * 1.2**look
            table.extend([norm, norm, 0.25, 5.0 if bad else 0.0, 1e-3])
        layers.add(start + 1 + look * every, names, range(min(2, len(names))), table)
    path.write_bytes(layers.to_bytes())


def event(kind: str, step: int, **details: Any) -> dict[str, Any]:
    """A line of events.jsonl."""
    return {"version": 1, "time": TIME, "event": kind, "step": step, **details}


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def an_incident(**more: Any) -> dict[str, Any]:
    """incident.json as far as a page reads it."""
    return {
        "version": 1, "time": TIME, "step": 40, "trigger": "loss-not-finite", "device": "cpu",
        "decision": {"action": "veto", "code": "loss-not-finite", "reason": "loss is nan"},
        "batch": {"words": "input_ids int64[8, 16]"}, "files": {},
    } | more  # fmt: skip


def an_autopsy(**more: Any) -> dict[str, Any]:
    """autopsy.json of an overflow that bf16 mends."""
    world = {"loss": 2.5, "grad_norm": 1.25, "seconds": 0.5}
    return {
        "version": 1, "cause": "fp16-overflow", "confidence": 0.96,
        "verdict": "fp16-overflow (96%): mm in encoder.wo reaches 250,622 in fp16. Fix: use bf16, verified (bf16).",
        "origin": {
            "operator": "aten.mm", "forward_operator": None, "module": "encoder.wo", "phase": "forward",
            "file": "model.py", "line": 84, "dtype": "float16", "leaf": None,
            "inputs": [{"shape": [8, 4], "dtype": "float16", "least": 0.0, "largest": 1253.0, "name": None}],
        },
        "rows": [3], "chain": ["aten.add in encoder (forward)", "...", "aten.nll_loss in the loss (forward)"],
        "worlds": [
            {"name": "same", "change": "nothing", "finite": False, "loss": None, "grad_norm": None, "seconds": 0.25},
            {"name": "bf16", "change": "everything in bf16", "finite": True, **world},
            {"name": "eager", "change": "not compiled", "finite": False, **world, "error": "no graph"},
        ],
        "fix": {"text": "use bf16", "setting": {"bf16": True}, "verified": True, "by": "bf16"},
        "also": [], "seconds": 2.5,
    } | more  # fmt: skip
