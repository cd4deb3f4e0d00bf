"""Trainings with an engine in processes of their own, kinds of parallelism times acts, and how they ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from stage import Played, play


class EngineRuns:
    """Trainings that so many ranks went through, each in a folder of its own; a resumed one in that of the killed."""

    def __init__(self, job: str, folder: Path, acts: list[tuple[str, str]], *, ranks: int) -> None:
        self.folder, self.ranks = folder, ranks
        lines = {f"{kind} {act}": (kind, act, self.of(kind, act)) for kind, act in acts}
        self.played: dict[str, Played] = play(job, lines, folder / "stage", ranks=ranks, timeout=880)

    def of(self, kind: str, act: str) -> Path:
        (folder := self.folder / kind / ("kill" if act == "resume" else act)).mkdir(parents=True, exist_ok=True)
        return folder

    def seen(self, kind: str, act: str) -> list[dict[str, Any]]:
        self.played[f"{kind} {act}"].check()
        return [json.loads((self.of(kind, act) / f"{act}-{rank}.json").read_text()) for rank in range(self.ranks)]

    def ended(self, kind: str, act: str) -> list[list[torch.Tensor]]:
        self.played[f"{kind} {act}"].check()
        return [torch.load(self.of(kind, act) / f"{act}-{rank}.pt") for rank in range(self.ranks)]

    def alike(self, kind: str, one: str, other: str) -> bool:
        """Whether two trainings have ended in the same weights, moments, rate and schedule, to the last bit."""
        pairs = zip(self.ended(kind, one), self.ended(kind, other), strict=True)
        return all(len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True)) for a, b in pairs)

    def events(self, kind: str, act: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.of(kind, act) / "run" / "events.jsonl").read_text().splitlines()]
