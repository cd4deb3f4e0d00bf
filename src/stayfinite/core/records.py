"""Records of a run: one JSON object per line, each with the version of its format.

Non-finite numbers are written as ``NaN`` and ``Infinity``, which Python's ``json`` and pandas read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.core.decision import Decision
from stayfinite.core.finding import Finding

VERSION = 1
"""Version of run.json and of every line in steps.jsonl and events.jsonl."""


def step_record(decision: Decision) -> dict[str, Any]:
    """Line of steps.jsonl for one step."""
    signals = decision.signals
    record: dict[str, Any] = {
        "version": VERSION,
        "step": signals.step,
        "loss": signals.loss,
        "grad_norm": signals.grad_norm,
        "lr": signals.lr,
        "loss_scale": signals.loss_scale,
        "decision": decision.action,
        "code": decision.code,
    }
    if signals.parts:
        record["parts"] = dict(signals.parts)
    if signals.named:
        record["signals"] = dict(signals.named)
    return record


def decision_record(decision: Decision, time: str) -> dict[str, Any]:
    """Line of events.jsonl for a notable decision."""
    signals = decision.signals
    return {
        "version": VERSION,
        "time": time,
        "event": decision.action,
        "step": signals.step,
        "code": decision.code,
        "reason": decision.reason,
        "loss": signals.loss,
        "grad_norm": signals.grad_norm,
        "loss_scale": signals.loss_scale,
        "batch": signals.batch,
        "batch_shape": signals.batch_shape,
        "bad_parameters": list(signals.bad_parameters),
        "bad_count": signals.bad_count,
        "bad_ranks": list(signals.bad_ranks),
    }


def finding_record(finding: Finding, step: int, time: str) -> dict[str, Any]:
    """Line of events.jsonl for a finding."""
    return {"version": VERSION, "time": time, "event": "finding", "step": step, **finding.to_json()}


def plain_event(event: str, step: int, time: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Line of events.jsonl for anything else: a start, an error, the end."""
    return {"version": VERSION, "time": time, "event": event, "step": step, **details}
