"""Undoable writes: run each branch from the same state, then merge the results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

MISSING: Any = object()  # no value at all

_births = itertools.count()


class Slots(dict[Any, Any]):
    """A table of names, attributes or entries that knows when it was created: what a branch creates is its own."""

    __slots__ = ("born",)

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries)
        self.born = next(_births)


Slot = tuple[int, Any]
Join = Callable[[dict[Any, Any], list[Any]], Any]


class Store:
    """All writes to names, attributes and entries go through here."""

    def __init__(self) -> None:
        self._trails: list[list[tuple[dict[Any, Any], Any, Any]]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set one entry, or remove it with ``MISSING``."""
        if self._trails:
            self._trails[-1].append((table, key, table.get(key, MISSING)))
        if value is MISSING:
            table.pop(key, None)
        else:
            table[key] = value

    def alternatives(self, branches: Sequence[Callable[[], bool]], join: Join) -> bool:
        """Follow alternative branches from the same state and merge what they wrote.

        A branch returns whether it leaves the function; its writes are then dropped. Returns whether all do.
        """
        tables: dict[int, dict[Any, Any]] = {}
        outcomes: list[dict[Slot, Any]] = []
        touched: dict[Slot, None] = {}
        for branch in branches:
            began = next(_births)
            self._trails.append([])
            try:
                leaves = branch()
            finally:
                trail = [each for each in self._trails.pop() if getattr(each[0], "born", -1) < began]
                final = {}
                for table, key, _ in trail:
                    tables[id(table)] = table
                    final[(id(table), key)] = table.get(key, MISSING)
                for table, key, old in reversed(trail):
                    if old is MISSING:
                        table.pop(key, None)
                    else:
                        table[key] = old
            if not leaves:
                outcomes.append(final)
                touched.update(dict.fromkeys(final))
        for slot in touched:
            table, key = tables[slot[0]], slot[1]
            before = table.get(key, MISSING)
            values = [outcome.get(slot, before) for outcome in outcomes]
            self.put(table, key, values[0] if len(values) == 1 else join(table, values))
        return not outcomes

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Writes in here belong to no branch: a module is evaluated once, wherever it is first imported."""
        trails, self._trails = self._trails, []
        try:
            yield
        finally:
            self._trails = trails
