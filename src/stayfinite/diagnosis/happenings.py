"""A line of events.jsonl as a person would tell it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.core.run_status import Happening
from stayfinite.readers.logs.records import as_number

GRAVE = frozenset({
    "veto", "cut", "rollback", "escalate", "stop", "stopped", "failed", "finding", "autopsy", "loader-error",
    "checkpoint-failed", "desync", "stall",
})  # fmt: skip
UNTOLD = frozenset({"incident", "replays", "replay-mismatch", "slowest-rank"})
"""The autopsy of it is told, or the step that was refused for it; and who is slowest, every 100 steps, is no news."""
LONGEST = 600
_BESIDE = (
    "version", "time", "event", "step", "batch", "batch_shape", "bad_parameters", "bad_count", "bad_ranks", "rank",
)  # fmt: skip


def happening_of(record: Mapping[str, Any]) -> Happening | None:
    """The event, or None where there is nothing to tell. Nothing in the record is trusted."""
    event = str(record.get("event") or "")
    if not event or event in UNTOLD:
        return None
    step = as_number(record.get("step"))
    rank = f"rank {record['rank']}: " if record.get("rank") else ""
    text = f"{rank}{_text(event, record)}"
    return Happening(
        step=int(step) if step is not None and math.isfinite(step) else None,
        event=event[:40],
        text=text if len(text) <= LONGEST else f"{text[:LONGEST]}…",
        time=str(record.get("time") or "")[:40],
        grave=event in GRAVE or event.endswith("-failed"),
    )


def finding_of(record: Mapping[str, Any]) -> Finding | None:
    """The finding that an event holds, where it is a whole one."""
    confidence = as_number(record.get("confidence"))
    if record.get("event") != "finding" or confidence is None or not math.isfinite(confidence):
        return None
    severity = record.get("severity")
    return Finding(
        code=str(record.get("code") or ""),
        cause=str(record.get("cause") or ""),
        severity=severity if severity in ("error", "warning", "info") else "warning",
        confidence=min(1.0, max(0.0, confidence)),
        where=str(record.get("where") or ""),
        title=str(record.get("title") or ""),
        evidence=(),
        fix=str(record.get("fix") or ""),
    )


def _text(event: str, record: Mapping[str, Any]) -> str:
    if event == "finding":
        return f"{record.get('code')} {record.get('cause')}: {record.get('title')}. {record.get('fix')}"
    if event == "checkpoint":
        return _checkpoint(record)
    said = next((str(record[name]) for name in ("verdict", "reason", "error", "checkpoint") if record.get(name)), "")
    if event == "rollback" and "to_step" in record:
        said = f"{said}, back to step {record['to_step']}"
    if said:
        return said
    rest = {name: value for name, value in record.items() if name not in _BESIDE}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in list(rest.items())[:4])


def _checkpoint(record: Mapping[str, Any]) -> str:
    """`step-00000500, 62 KiB in 0.02 s`."""
    size, seconds = (as_number(record.get(name)) for name in ("bytes", "seconds"))
    written = ""
    if size is not None and math.isfinite(size) and 0 <= size < 1e18:
        written = f", {size / (1 << 20):,.0f} MiB" if size >= 1 << 20 else f", {size / 1024:,.0f} KiB"
    if written and seconds is not None and math.isfinite(seconds):
        written += f" in {seconds:.2f} s"
    return f"{str(record.get('path') or '').rpartition('/')[2]}{written}"
