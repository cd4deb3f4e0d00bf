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
"""Decisions that keep a step from the weights."""

MOST_PARTS = 8
"""Named parts of the loss that get a curve of their own."""

MOST_SIGNALS = 32
"""The same for signals of the loop's own, such as KL and reward."""


class Steps:
    """Takes the lines of steps.jsonl one by one."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.decisions: Counter[str] = Counter()
        """How often each decision was taken."""
        self.count = 0
        """Each step once, however often a run was taken up again before it."""
        self.last_step = 0.0
        self.last_loss: float | None = None
        """Of the last step that was taken, finite or not."""

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in one line."""
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
            told = number(record.get("loss"))
            self.last_loss = self.last_loss if told is None else told
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
        """A run that was taken up again takes these steps anew: those of before led nowhere."""
        self.count = max(1, self.count - int(self.last_step - step + 1))
        for curve in self.curves.values():
            curve.rewind(step)

    def _note(self, name: str, step: float, value: Any) -> None:
        told = number(value)
        if told is None:
            return
        curve = self.curves.get(name)
        if curve is None:
            signals = sum(each.startswith(SIGNAL) for each in self.curves)
            parts = len(self.curves) - signals
            if signals >= MOST_SIGNALS if name.startswith(SIGNAL) else parts >= len(COLUMNS) + MOST_PARTS:
                return
            curve = self.curves[name] = Curve()
        curve.add(step, told)
