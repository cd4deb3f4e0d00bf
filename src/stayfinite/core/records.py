"""Records of a run: one JSON object per line, each with the version of its format.

Non-finite numbers are written as ``NaN`` and ``Infinity``, which Python's ``json`` and pandas read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.core.decision import Decision
from stayfinite.core.finding import Finding
from stayfinite.core.signals import Signals

VERSION = 1
"""Version of run.json and of every line in steps.jsonl and events.jsonl."""


def step_record(decision: Decision) -> dict[str, Any]:
    """Line of steps.jsonl for one step."""
    signals = decision.signals
    record = {"version": VERSION, **_of(signals, "step", "loss", "grad_norm", "lr", "loss_scale")}
    record |= {"decision": decision.action, "code": decision.code}
    if signals.parts:
        record["parts"] = dict(signals.parts)
    if signals.named:
        record["signals"] = dict(signals.named)
    return record


def decision_record(decision: Decision, time: str) -> dict[str, Any]:
    """Line of events.jsonl for a notable decision."""
    signals = decision.signals
    record = plain_event(decision.action, signals.step, time, {"code": decision.code, "reason": decision.reason})
    return record | _of(
        signals, "loss", "grad_norm", "loss_scale", "batch", "batch_shape", "bad_parameters", "bad_count", "bad_ranks"
    )


def _of(signals: Signals, *names: str) -> dict[str, Any]:
    """These signals by name, as JSON has them."""
    found = {name: getattr(signals, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def finding_record(finding: Finding, step: int, time: str) -> dict[str, Any]:
    """Line of events.jsonl for a finding."""
    return plain_event("finding", step, time, finding.to_json())


def plain_event(event: str, step: int, time: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Line of events.jsonl for anything else: a start, an error, the end."""
    return {"version": VERSION, "time": time, "event": event, "step": step, **details}
