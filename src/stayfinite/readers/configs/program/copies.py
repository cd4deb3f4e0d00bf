"""Copy mutable values."""

from __future__ import annotations

from stayfinite.readers.configs.program.store import Slots
from stayfinite.readers.configs.program.values import Instance, Limit, Row, Table, Value

_DEEPEST = 8


def copied(value: Value, depth: int = 0, limit: Limit | None = None) -> Value:
    """A deep copy; a very large value is copied only up to the limit."""
    data = value.data
    limit = limit or Limit()
    depth = depth if limit.spend() else _DEEPEST
    if depth < _DEEPEST and isinstance(data, Table):
        data = Table({key: copied(each, depth + 1, limit) for key, each in data.entries.items()}, data.is_told)
    elif depth < _DEEPEST and isinstance(data, Row) and "items" in data.cell:
        data = Row({"items": [copied(each, depth + 1, limit) for each in data.items]})
    elif depth < _DEEPEST and isinstance(data, Instance):
        own = Slots({name: copied(each, depth + 1, limit) for name, each in data.attributes.items()})
        data = Instance(data.of, own, data.assumed)
    else:
        return value
    return Value(data, value.origin, value.line, value.node, value.assumed)
