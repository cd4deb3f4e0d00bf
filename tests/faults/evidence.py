"""What a run has left on disk: its events, its steps, its checkpoints, and whether any of those is poisoned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from faults.short_training import Job

REFUSING = frozenset({"veto", "cut", "rollback", "escalate", "stop"})


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSON-lines file; none where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def events(job: Job, *names: str) -> list[dict[str, Any]]:
    """The run's events of these names."""
    return [each for each in lines(job.run_dir / "events.jsonl") if each["event"] in names]


def last_step(job: Job) -> int:
    """The last step that was written down; 0 for none."""
    steps = lines(job.run_dir / "steps.jsonl")
    return int(steps[-1]["step"]) if steps else 0


def refused_steps(job: Job) -> dict[int, str]:
    """Every refused step, with its code."""
    return {each["step"]: each["code"] for each in events(job, *REFUSING)}


def steps_thrown_away(job: Job) -> int:
    """Steps that left no trace in the weights: refused ones, and those that a rollback took back."""
    gone = set(refused_steps(job))
    for each in events(job, "rollback"):
        gone |= set(range(each.get("to_step", each["step"]) + 1, each["step"] + 1))
    return len(gone)


def good_checkpoints(job: Job) -> list[Path]:
    """Those whose manifest calls them good, the newest first; read without the package's own code."""
    found = []
    for manifest in job.checkpoints.glob("step-*/manifest.json"):
        try:
            record = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if record.get("good") is True:
            found.append((record["serial"], manifest.parent))
    return [path for _, path in sorted(found, reverse=True)]


def step_of(checkpoint: Path) -> int:
    """The step in a checkpoint's name."""
    return int(checkpoint.name.removeprefix("step-").partition(".")[0])


def is_poisoned(checkpoint: Path) -> bool:
    """Whether any number in it is NaN or infinity."""
    return any(
        tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
        for file in checkpoint.glob("*.safetensors")
        for tensor in load_file(file).values()
    )
