"""Heat map of layers over time, one byte per cell, and the layers that stand out."""

import base64
import math
from collections.abc import Sequence
from typing import Any

from stayfinite.readers.runs.reader import LayerTable
from stayfinite.report.page.plain import short, text

MOST_ROWS, MOST_COLUMNS = 120, 240
"""Size limits of the map. More layers are grouped by module."""

MOST_WORST = 10
NONE, ZERO, LEAST, MOST, BAD = 0, 1, 2, 254, 255
"""Cell values: unknown, exactly 0, the scale from ``LEAST`` to ``MOST``, not finite."""

SHOWN = {"norm": "gradient norm", "update_ratio": "update ratio", "zero_share": "share of zeros"}
RISE = "norm against its median"
"""Normalized per layer, so that it shows where trouble starts whatever the sizes of the layers."""

OUTER = 0.005
"""Share of cells clipped at each end of the color scale."""


def heat_data(table: LayerTable) -> dict[str, Any]:
    """All maps of a run."""
    groups = _groups(table.names)
    columns = _columns(len(table.steps))
    broken = [_broken(table, members) for members in groups.values()]
    fields = {}
    for field, title in SHOWN.items():
        if field in table.tables:
            rows = [_row(table, field, *row) for row in zip(groups.values(), broken, strict=True)]
            cells = [_together(row, looks) for row in rows for looks in columns]
            fields[field] = {"title": title} | _packed(cells, linear=field == "zero_share")
            if field == "norm":
                cells = [_together(row, looks) for row in map(_risen, rows) for looks in columns]
                fields["rise"] = {"title": RISE} | _packed(cells, linear=False)
    return {
        "names": [text(name, 200) for name in groups],
        "grouped": len(groups) < len(table.names),
        "parameters": len(table.names),
        "steps": [table.steps[looks[-1]] for looks in columns],
        "first": table.steps[0],
        "fields": fields,
        "worst": _worst(table),
    }


def _groups(names: Sequence[str]) -> dict[str, list[int]]:
    """Rows of the map: parameters, or their modules if there are too many."""
    depth = max(name.count(".") for name in names) + 1
    groups: dict[str, list[int]] = {}
    for kept in range(depth, 0, -1):
        groups = {}
        for place, name in enumerate(names):
            groups.setdefault(".".join(name.split(".")[:kept]), []).append(place)
        if len(groups) <= MOST_ROWS:
            return groups
    share = math.ceil(len(names) / MOST_ROWS)
    rows = [list(range(first, min(first + share, len(names)))) for first in range(0, len(names), share)]
    return {f"{names[row[0]]} … {names[row[-1]]}": row for row in rows}


def _columns(looks: int) -> list[range]:
    share = math.ceil(looks / MOST_COLUMNS)
    return [range(first, min(first + share, looks)) for first in range(0, looks, share)]


def _row(table: LayerTable, field: str, members: Sequence[int], broken: Sequence[bool]) -> list[float | None]:
    """Largest value of the members per sample; NaN if one is not finite, None if unknown."""
    largest: list[float | None] = [None] * len(broken)
    for place in members:
        for look, value in enumerate(table.column(field, place)):
            held = largest[look]
            if math.isfinite(value) and (held is None or value > held):
                largest[look] = value
    return [math.nan if bad else value for bad, value in zip(broken, largest, strict=True)]


def _risen(row: Sequence[float | None]) -> list[float | None]:
    """Values over the row's median; None if no gradient was above 0."""
    known = sorted(value for value in row if value is not None and math.isfinite(value) and value > 0)
    usual = known[len(known) // 2] if known else math.nan
    return [value if value is None or not math.isfinite(value) else _or_none(value / usual) for value in row]


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _together(row: Sequence[float | None], looks: range) -> float | None:
    known = [value for value in row[looks.start : looks.stop] if value is not None]
    return math.nan if not all(map(math.isfinite, known)) else max(known, default=None)


def _broken(table: LayerTable, members: Sequence[int]) -> list[bool]:
    """Samples with a non-finite gradient. A NaN norm alone means there was no gradient."""
    broken = [False] * len(table.steps)
    for place in members:
        for look, count in enumerate(table.column("nonfinite", place)):
            if math.isfinite(count) and count > 0:
                broken[look] = True
        for look, norm in enumerate(table.column("norm", place)):
            if math.isinf(norm):
                broken[look] = True
    return broken


def _packed(cells: Sequence[float | None], *, linear: bool) -> dict[str, Any]:
    known = sorted(cell for cell in cells if cell is not None and math.isfinite(cell) and cell > 0)
    outer = int(len(known) * OUTER)
    low, high = (0.0, 1.0) if linear or not known else (known[outer], known[-1 - outer])
    begin, end = (low, high) if linear or not known else (math.log(low), math.log(high))
    packed = bytearray()
    for cell in cells:
        if cell is None:
            packed.append(NONE)
        elif not math.isfinite(cell):
            packed.append(BAD)
        elif cell <= 0:
            packed.append(ZERO)
        else:
            place = ((cell if linear else math.log(cell)) - begin) / ((end - begin) or 1.0)
            packed.append(LEAST + round(min(1.0, max(0.0, place)) * (MOST - LEAST)))
    beyond = bool(known) and not linear and known[-1] > high
    return {
        "low": short(low),
        "high": short(high),
        "beyond": beyond,
        "linear": linear,
        "cells": base64.b64encode(packed).decode(),
    }


def _worst(table: LayerTable) -> list[dict[str, Any]]:
    """Parameters that stand out: non-finite first, then by peak norm over median norm."""
    found: list[dict[str, Any]] = []
    for place, name in enumerate(table.names):
        broken = [look for look, bad in enumerate(_broken(table, [place])) if bad]
        norms = _finite(table, "norm", place)
        usual = sorted(value for _, value in norms)[len(norms) // 2] if norms else 0.0
        at, highest = max(norms, key=lambda pair: pair[1], default=(0, 0.0))
        zeros, ratios = _finite(table, "zero_share", place), _finite(table, "update_ratio", place)
        found.append({
            "name": text(name, 200),
            "broken": len(broken),
            "first_broken": table.steps[broken[0]] if broken else None,
            "highest": short(highest) if norms else None,
            "at": table.steps[at] if norms else None,
            "above": short(highest / usual) if usual > 0 else None,
            "zeros": short(sum(value for _, value in zeros) / len(zeros)) if zeros else None,
            "ratio": short(max(value for _, value in ratios)) if ratios else None,
        })  # fmt: skip
    found.sort(key=lambda row: (-row["broken"], row["first_broken"] or 0, -(row["above"] or 0.0)))
    return found[:MOST_WORST]


def _finite(table: LayerTable, field: str, place: int) -> list[tuple[int, float]]:
    return [(look, value) for look, value in enumerate(table.column(field, place)) if math.isfinite(value)]
