"""Rows that are objects: their keys as columns, one level of nested objects too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of rows with keys of their own; None where a row has no such key."""
    if rows and all(row.keys() == rows[0].keys() for row in rows):
        columns = {str(name): [row[name] for row in rows] for name in rows[0]}
    else:
        names: dict[str, None] = {}
        for row in rows:
            names |= dict.fromkeys(row)
        columns = {str(name): [row.get(name) for row in rows] for name in names}
    return unnested(columns)


def unnested(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns of objects opened: `translation` of ``{"en": ..., "de": ...}`` as `translation.en`, `translation.de`."""
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
