"""Copy mutable values, and merge several possible values into what they agree on."""

from __future__ import annotations

from typing import Any

from stayfinite.readers.configs.program.store import MISSING, Slots
from stayfinite.readers.configs.program.values import External, Instance, Limit, Row, Table, Unknown, Value

_DEEPEST = 8


def same(one: Value, other: Value, depth: int = 0, limit: Limit | None = None) -> bool:
    """Whether two values are certainly equal."""
    limit = limit or Limit()
    left, right = one.data, other.data
    if left is right:
        return not isinstance(left, Unknown)
    if one.is_scalar and other.is_scalar:
        return type(left) is type(right) and bool(left == right)
    if depth > _DEEPEST or type(left) is not type(right) or not limit.spend():
        return False
    if isinstance(left, External):
        return bool(left.full == right.full)
    if isinstance(left, Table):
        return left.entries.keys() == right.entries.keys() and all(
            same(each, right.entries[key], depth + 1, limit) for key, each in left.entries.items()
        )
    if isinstance(left, Row):
        return len(left.items) == len(right.items) and all(
            same(each, twin, depth + 1, limit) for each, twin in zip(left.items, right.items, strict=True)
        )
    return False


def joined(values: list[Value], depth: int = 0, limit: Limit | None = None) -> Value:
    """What is known about a value that is one of these."""
    first = values[0]
    limit = limit or Limit()
    if all(same(first, each) for each in values[1:]):
        return first
    if depth < _DEEPEST and limit.spend() and all(isinstance(each.data, Table) for each in values):
        keys = dict.fromkeys(key for each in values for key in each.data.entries)
        entries = {key: _entry([each.data.entries.get(key, MISSING) for each in values], depth, limit) for key in keys}
        return Value(Table(entries), first.origin, first.line, first.node, first.assumed)
    return Value(Unknown(), first.origin, first.line, first.node)


def join_slot(values: list[Any], *, names: bool) -> Any:
    """Merge the values of an entry, for the store. ``names``: reading a missing entry is an error.

    A name that only one branch sets has that value wherever it is read. A dict key may be missing.
    """
    present = [each for each in values if each is not MISSING]
    if not present:
        return MISSING
    if isinstance(present[0], list):
        return present[0] if all(_same_items(present[0], each) for each in values) else MISSING
    return joined(present) if names or len(present) == len(values) else _entry(values, 0, Limit())


def _entry(values: list[Any], depth: int, limit: Limit) -> Value:
    present = [each for each in values if each is not MISSING]
    if len(present) == len(values):
        return joined(present, depth + 1, limit)
    first = present[0]
    return Value(Unknown(), first.origin, first.line, first.node)


def _same_items(one: Any, other: Any) -> bool:
    if other is MISSING or len(one) != len(other):
        return False
    return all(same(each, twin) for each, twin in zip(one, other, strict=True))


_COPIES_DEEPEST = 8


def copied(value: Value, depth: int = 0, limit: Limit | None = None) -> Value:
    """A deep copy; a very large value is copied only up to the limit."""
    data = value.data
    limit = limit or Limit()
    depth = depth if limit.spend() else _COPIES_DEEPEST
    if depth < _COPIES_DEEPEST and isinstance(data, Table):
        data = Table({key: copied(each, depth + 1, limit) for key, each in data.entries.items()}, data.is_told)
    elif depth < _COPIES_DEEPEST and isinstance(data, Row) and "items" in data.cell:
        data = Row({"items": [copied(each, depth + 1, limit) for each in data.items]})
    elif depth < _COPIES_DEEPEST and isinstance(data, Instance):
        own = Slots({name: copied(each, depth + 1, limit) for name, each in data.attributes.items()})
        data = Instance(data.of, own, data.assumed)
    else:
        return value
    return Value(data, value.origin, value.line, value.node, value.assumed)
