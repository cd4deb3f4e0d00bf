"""steps.jsonl as curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stayfinite.core.curve import Curve
from stayfinite.readers.runs.growing import number

COLUMNS = ("loss", "grad_norm", "lr", "loss_scale")
SIGNAL = "signal: "
REFUSING = frozenset({"veto", "cut", "rollback", "escalate", "stop"})
"""Decisions that withhold the update."""

MOST_PARTS = 8  # loss terms with their own curve

MOST_SIGNALS = 32  # custom signals with their own curve, such as KL and reward


class Steps:
    """Reads steps.jsonl line by line."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.decisions: Counter[str] = Counter()
        """Steps by decision."""
        self.count = 0
        """Distinct steps, across resumes."""
        self.last_step = 0.0
        self.last_loss: float | None = None
        """Loss of the last applied step, finite or not."""

    def add(self, record: Mapping[str, Any]) -> None:
        step = number(record.get("step"))
        self.count += 1
        if step is None or not abs(step) < 1e15:
            step = self.last_step + 1
        if self.count > 1 and step <= self.last_step:
            self._rewind(step)
        self.last_step = step
        decision = record.get("decision")
        if isinstance(decision, str):
            self.decisions[decision[:40]] += 1
        if not isinstance(decision, str) or decision not in REFUSING:
            parsed = number(record.get("loss"))
            self.last_loss = self.last_loss if parsed is None else parsed
        for name in COLUMNS:
            self._note(name, step, record.get(name))
        parts = record.get("parts")
        if isinstance(parts, dict):
            for name, value in parts.items():
                self._note(f"part: {name}"[:80], step, value)
        signals = record.get("signals")
        if isinstance(signals, dict):
            for name, value in signals.items():
                self._note(f"{SIGNAL}{name}"[:80], step, value)

    def _rewind(self, step: float) -> None:
        """Drop steps that a resumed run takes again."""
        self.count = max(1, self.count - int(self.last_step - step + 1))
        for curve in self.curves.values():
            curve.rewind(step)

    def _note(self, name: str, step: float, value: Any) -> None:
        parsed = number(value)
        if parsed is None:
            return
        curve = self.curves.get(name)
        if curve is None:
            signals = sum(each.startswith(SIGNAL) for each in self.curves)
            parts = len(self.curves) - signals
            if signals >= MOST_SIGNALS if name.startswith(SIGNAL) else parts >= len(COLUMNS) + MOST_PARTS:
                return
            curve = self.curves[name] = Curve()
        curve.add(step, parsed)
