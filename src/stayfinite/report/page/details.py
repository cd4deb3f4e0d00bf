"""Details of a run as tables, and its incidents: origin, path to the loss, worlds, bad rows, fix."""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from stayfinite.core.settings import Setting
from stayfinite.readers.runs.directory import number
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.page.plain import objects, records, short, shown, text, texts, without_repeats

Table = dict[str, Any]
MEBIBYTE = 1 << 20


def details_data(run: RunReader) -> list[Table]:
    """Non-empty tables of a run directory."""
    launch = run.launches[-1] if run.launches else {}
    return _tables({
        "Model": _rows(objects(launch.get("model"))),
        "Optimizer": _optimizer(launch),
        "Configuration": _configuration(run, launch),
        "Guard": _rows({"max_norm": launch.get("max_norm")} | objects(launch.get("policy"))) if launch else [],
        "Environment": _environment(run, launch) if run.launches else [],
        "Data": _data(run),
        "Ranks": _ranks(run),
        "Memory peaks": [[text(where, 120), _size(peak)] for where, peak in run.events.memory.items()],
    })  # fmt: skip


def settings_table(settings: Iterable[Setting]) -> list[Table]:
    """Settings of a log and the configs beside it; later ones win."""
    return _tables({"Configuration": _rows({setting.name: setting.value for setting in settings})})


def sources_table(diagnosis: Mapping[str, Any]) -> list[Table]:
    """The files read, and the result for each."""
    sources = records(diagnosis.get("sources"), 60)
    return _tables({"Files": [[text(each.get(name, ""), 300) for name in ("path", "said")] for each in sources]})


def _tables(rows: Mapping[str, list[list[str]]]) -> list[Table]:
    """A table for each title that has rows."""
    return [{"title": title, "rows": own} for title, own in rows.items() if own]


def _rows(settings: Mapping[str, Any]) -> list[list[str]]:
    return [[text(name, 120), shown(value)] for name, value in list(settings.items())[:200]]


def _configuration(run: RunReader, launch: Mapping[str, Any]) -> list[list[str]]:
    """Launch configuration from run.json, if present."""
    rows = [["recipe", text(run.launch["recipe"], 120)]] if run.launch.get("recipe") else []
    return rows + _rows(objects(run.launch.get("config")) or objects(launch.get("config")))


def _optimizer(launch: Mapping[str, Any]) -> list[list[str]]:
    optimizer = objects(launch.get("optimizer"))
    rows = _rows({"class": optimizer["class"]}) if "class" in optimizer else []
    groups = records(optimizer.get("groups"), 8)
    for place, group in enumerate(groups):
        prefix = f"group {place} " if len(groups) > 1 else ""
        rows += [[f"{prefix}{name}", value] for name, value in _rows(group)]
    return rows


def _environment(run: RunReader, launch: Mapping[str, Any]) -> list[list[str]]:
    rows = _rows(objects(launch.get("versions")))
    rows += _rows({name: launch[name] for name in ("platform", "devices") if name in launch})
    if "seed" in launch:
        rows.append(["seed", text(launch["seed"], 40)])
    rows.append(["launched", _moment(launch.get("time", ""))])
    if len(run.launches) > 1:
        rows.append(["launches", str(len(run.launches))])
    return rows


def _data(run: RunReader) -> list[list[str]]:
    rows = _rows(objects(run.launches[-1].get("data"))) if run.launches else []
    words = {text(objects(each["record"].get("batch")).get("words", ""), 300): None for each in run.incidents}
    rows += [["batch of an incident", each] for each in words if each]
    for name, count in run.events.counts.items():
        if name.startswith(("loader", "batch", "data")):
            rows.append([text(name.replace("-", " "), 80), f"{count:,}"])
    passed = sum(len(value) for value in run.ledger.values() if isinstance(value, list | dict))
    if passed:
        rows.append(["in the ledger", f"{passed:,} entries, skipped on resume"])
    return rows


def _ranks(run: RunReader) -> list[list[str]]:
    """The slowest rank, and the last stall."""
    rows = []
    if slowest := run.events.slowest:
        rows.append(["slowest rank", f"{shown(slowest.get('slowest_rank'))} ({text(slowest.get('host', ''), 120)})"])
        for name, title in (("share", "its own share of a step"), ("mean_share", "mean share of all ranks")):
            share = number(slowest.get(name))
            if share is not None and 0 <= share <= 1:
                rows.append([title, f"{share:.0%}"])
        seconds = number(slowest.get("step_seconds"))
        if seconds is not None and 0 <= seconds < 1e9:
            rows.append(["seconds a step", f"{seconds:.4g}"])
    if stall := run.events.stall:
        rows.append([f"stall at step {shown(stall.get('step'))}", text(stall.get("reason", ""), 400)])
        rows.append(["stacks of all ranks", text(stall.get("stacks", ""), 120)])
    return rows


def _moment(when: Any) -> str:
    """`2026-11-15 18:39:27 UTC`; unchanged if not a time."""
    try:
        return datetime.fromisoformat(when).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return text(when, 40)


def _size(peak: Any) -> str:
    return f"{peak / MEBIBYTE:,.0f} MiB" if isinstance(peak, int | float) and 0 <= peak < 1e18 else shown(peak)


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
        **texts(record, time=40, trigger=80, device=120),
        "reason": text(decision.get("reason", ""), 800),
        "batch": text(batch.get("words", ""), 400),
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
        **texts(origin, leaf=200, operator=200, module=300, phase=40, dtype=40),
        "forward": text(origin.get("forward_operator") or "", 200),
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
        **texts(world, name=80, change=400),
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
