"""Convert JSON values to rows: keys become columns, nested objects are opened one level, list items are numbered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

NO_ROW = "expected an object with fields, or a list such as [question, answer], not"


def counted(row: Sequence[Any]) -> dict[str, Any]:
    """Name list items like the columns of a table without a header."""
    return {f"column {number}": value for number, value in enumerate(row, 1)}


class RowsAlike:
    """Converts JSON values to rows: all objects, all lists of one length, or all texts."""

    def __init__(self) -> None:
        self._width: int | None = None

    def row(self, value: Any) -> dict[str, Any] | str:
        """The row, or why the value is not one."""
        if isinstance(value, str):
            value = {"text": value}
        if isinstance(value, dict) and value:
            found, width = value, 0
        elif isinstance(value, list) and len(value) > 1:
            found, width = counted(value), len(value)
        else:
            told = (_kind(len(value)) if value else "[]") if isinstance(value, list) else json.dumps(value)[:40]
            return f"{NO_ROW} {told}"
        if self._width is None:
            self._width = width
        if width != self._width:
            return f"expected {_kind(self._width)} as in the first row, not {_kind(width)}"
        return found


def _kind(width: int) -> str:
    return f"a list of {width} value{'s' * (width > 1)}" if width else "an object with fields"


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Convert rows with different keys to columns; None if a row lacks a key."""
    if rows and all(row.keys() == rows[0].keys() for row in rows):
        columns = {str(name): [row[name] for row in rows] for name in rows[0]}
    else:
        names: dict[str, None] = {}
        for row in rows:
            names |= dict.fromkeys(row)
        columns = {str(name): [row.get(name) for row in rows] for name in names}
    return unnested(columns)


def unnested(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Open columns of objects: ``{"en": ..., "de": ...}`` in `translation` fills `translation.en`, `translation.de`."""
    flat: dict[str, list[Any]] = {}
    for name, values in columns.items():
        first = next((value for value in values if value is not None), None)
        if not isinstance(first, Mapping):
            flat[name] = values
            continue
        keys: dict[str, None] = {}
        for value in values:
            if isinstance(value, Mapping):
                keys |= dict.fromkeys(value)
        for key in keys:
            flat[f"{name}.{key}"] = [value.get(key) if isinstance(value, Mapping) else None for value in values]
    return flat
