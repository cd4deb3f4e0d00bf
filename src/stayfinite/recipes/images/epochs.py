"""training_log.csv with one line per epoch; peak memory."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import torch

NAME = "training_log.csv"


class EpochLog:
    """One line per epoch, computed from steps.jsonl, so that a kill loses nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: list[dict[str, Any]] = []

    def recall(self, step: int) -> None:
        """Restore the lines up to this step."""
        path = self._directory / NAME
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                self._rows = [row for row in csv.DictReader(file) if int(row["step"]) <= step]

    def has(self, epoch: int) -> bool:
        return any(int(row["epoch"]) == epoch for row in self._rows)

    def write(self, epoch: int, step: int, **numbers: float | None) -> dict[str, Any]:
        """Write the line of an epoch, replacing an earlier one."""
        self._rows = [row for row in self._rows if int(row["epoch"]) < epoch]
        begun = int(self._rows[-1]["step"]) if self._rows else 0
        row: dict[str, Any] = {"epoch": epoch, "step": step} | self._steps(begun, step) | numbers
        self._rows.append({name: _plain(value) for name, value in row.items()})
        aside = self._directory / f"{NAME}.new"
        with aside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self._rows[-1]))
            writer.writeheader()
            writer.writerows(self._rows)
        aside.replace(self._directory / NAME)
        return row

    def _steps(self, after: int, last: int) -> dict[str, Any]:
        """Means over an epoch's steps. Refused steps are counted but not averaged."""
        steps: dict[int, dict[str, Any]] = {}
        with (self._directory / "steps.jsonl").open(encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if after < record["step"] <= last:
                    steps[record["step"]] = record  # a step repeated after a kill counts once
        taken = [record for record in steps.values() if record["decision"] in ("accept", "clip", "bound")]
        parts = [record.get("parts") or {} for record in taken]
        return {
            "train_loss": _mean([record["loss"] for record in taken]),
            "answer_loss": _mean([part.get("answer") for part in parts]),
            "consistency_loss": _mean([part.get("consistency") for part in parts]),
            "grad_norm": _mean([record["grad_norm"] for record in taken]),
            "clipped": sum(record["decision"] == "clip" for record in taken),
            "refused": len(steps) - len(taken),
            "loss_scale": next((record["loss_scale"] for record in reversed(taken)), None),
        }


def memory_peak(device: torch.device) -> float:
    """Peak memory in MiB: since the last call on CUDA, of the process elsewhere."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device) / 2**20
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def _mean(values: list[Any]) -> float:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else float("nan")


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return f"{value:.6g}" if math.isfinite(value) else ""
