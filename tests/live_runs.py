"""A run directory that a test writes step by step, as the guard would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stayfinite.guard.telling.journal import Journal, now

NAN = float("nan")


class WrittenRun:
    def __init__(self, directory: Path, *, steps: int | None = None, **plan: Any) -> None:
        self.directory = directory
        self.journal = Journal(directory)
        self.step = 0
        record = {"version": 1, "launches": [{"time": now()}]} | ({} if steps is None else {"steps": steps}) | plan
        self.journal.whole("run.json", json.dumps(record).encode())
        self.event("start")

    def event(self, event: str, **details: Any) -> None:
        self.journal.line("events.jsonl", {"version": 1, "time": now(), "event": event, "step": self.step, **details})

    def accept(self, count: int = 1, *, loss: float | None = None, **more: Any) -> None:
        for _ in range(count):
            self.step += 1
            fallen = 2.0 + 3.0 * 0.99**self.step + 0.05 * ((self.step * 7919) % 13 - 6)
            self._line(fallen if loss is None else loss, 1.0 + 0.1 * (self.step % 5), "accept", "finite", **more)

    def refuse(
        self, count: int = 1, *, decision: str = "veto", code: str = "loss-not-finite", reason: str = "loss is nan"
    ) -> None:
        for _ in range(count):
            self.step += 1
            self._line(NAN, NAN, decision, code)
            self.event(decision, code=code, reason=reason)

    def _line(self, loss: float, norm: float, decision: str, code: str, **more: Any) -> None:
        record = {"version": 1, "step": self.step, "loss": loss, "grad_norm": norm, "lr": 1e-4, "loss_scale": None}
        self.journal.line("steps.jsonl", record | {"decision": decision, "code": code} | more)
