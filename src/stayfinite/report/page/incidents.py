"""Incidents for the page: origin, path to the loss, worlds, bad rows, fix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stayfinite.report.page.plain import objects, records, short, text, without_repeats

MOST_WORLDS, MOST_LINKS, MOST_ROWS, MOST_INPUTS = 40, 40, 24, 6


def incident_data(incident: Mapping[str, Any]) -> dict[str, Any]:
    """One incident from incident.json and autopsy.json. Tolerates any content."""
    record, autopsy = objects(incident.get("record")), objects(incident.get("autopsy"))
    decision, batch = objects(record.get("decision")), objects(record.get("batch"))
    origin, fix = objects(autopsy.get("origin")), objects(autopsy.get("fix"))
    rows = autopsy.get("rows")
    step = record.get("step")
    return {
        "name": text(incident.get("name", ""), 40),
        "step": step if isinstance(step, int) else None,
        "time": text(record.get("time", ""), 40),
        "trigger": text(record.get("trigger", ""), 80),
        "reason": text(decision.get("reason", ""), 800),
        "batch": text(batch.get("words", ""), 400),
        "device": text(record.get("device", ""), 120),
        "cause": text(autopsy["cause"], 80) if autopsy.get("cause") else None,
        "confidence": _number(autopsy.get("confidence")),
        "verdict": without_repeats(text(autopsy.get("verdict", "")), autopsy.get("cause")),
        "explained": bool(autopsy),
        "origin": _origin(origin) if origin else None,
        "chain": [text(link, 300) for link in _list(autopsy.get("chain"))[:MOST_LINKS]],
        "worlds": [_world(world) for world in records(autopsy.get("worlds"), MOST_WORLDS)],
        "rows": [row for row in _list(rows) if isinstance(row, int)][:MOST_ROWS],
        "decoded": _decoded(record, _list(rows)),
        "fix": {
            "text": text(fix.get("text", "")),
            "verified": fix.get("verified") is True,
            "by": text(fix["by"], 80) if fix.get("by") else None,
        },
        "also": [text(each.get("cause", ""), 80) for each in records(autopsy.get("also"), 4)],
        "seconds": _number(autopsy.get("seconds")),
    }


def _origin(origin: Mapping[str, Any]) -> dict[str, Any]:
    place = f"{_shortened(str(origin['file']))}:{origin.get('line')}" if origin.get("file") else ""
    return {
        "leaf": text(origin.get("leaf") or "", 200),
        "operator": text(origin.get("operator") or "", 200),
        "forward": text(origin.get("forward_operator") or "", 200),
        "module": text(origin.get("module") or "", 300),
        "phase": text(origin.get("phase") or "", 40),
        "dtype": text(origin.get("dtype") or "", 40),
        "place": text(place, 400),
        "inputs": [_input(each) for each in records(origin.get("inputs"), MOST_INPUTS)],
    }


def _shortened(path: str) -> str:
    """The last parts of a path, so that a shared page does not expose the machine's directories."""
    parts = path.replace("\\", "/").split("site-packages/")[-1].split("/")
    return "/".join(parts if len(parts) <= 3 else parts[-3:])


def _input(told: Mapping[str, Any]) -> str:
    name = f"{told['name']} " if told.get("name") else ""
    shape = ", ".join(map(str, _list(told.get("shape"))))
    least, largest = _number(told.get("least")), _number(told.get("largest"))
    between = "" if least is None or largest is None else f", {least:g} to {largest:g}"
    return text(f"{name}{told.get('dtype', '')}[{shape}]{between}", 300)


def _world(world: Mapping[str, Any]) -> dict[str, Any]:
    error = world.get("error")
    return {
        "name": text(world.get("name", ""), 80),
        "change": text(world.get("change", ""), 400),
        "outcome": "error" if error else "finite" if world.get("finite") is True else "bad",
        "error": text(error, 400) if error else None,
        "loss": _number(world.get("loss")),
        "grad_norm": _number(world.get("grad_norm")),
        "seconds": _number(world.get("seconds")),
    }


def _decoded(record: Mapping[str, Any], guilty: list[Any]) -> list[dict[str, Any]]:
    """Rows of the batch as text, bad ones first."""
    told = [row for row in records(record.get("rows"), 1_000) if isinstance(row.get("row"), int) and row.get("text")]
    told.sort(key=lambda row: (row["row"] not in guilty, row["row"]))
    return [{"row": row["row"], "guilty": row["row"] in guilty, "text": text(row["text"], 2_000)} for row in told][
        :MOST_ROWS
    ]


def _number(value: Any) -> float | int | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return short(value) if usable and math.isfinite(value) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
