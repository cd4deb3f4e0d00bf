"""Shorten lists of module names: `decoder.block.*.wo`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def pattern_of(name: str) -> str:
    """The name with `*` for its numbers."""
    return _NUMBER.sub("*", name)


def collapsed(names: Iterable[str], among: Collection[str] = ()) -> list[str]:
    """Names by pattern, with `*` for numbers where several names differ in nothing else.

    Arguments:
        names: the names to show.
        among: all names there are. A pattern that matches more than ``names`` is counted: `blocks.*.wo (3 of 12)`.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(pattern_of(name), []).append(name)
    every: dict[str, int] = {}
    for name in among:
        pattern = pattern_of(name)
        every[pattern] = every.get(pattern, 0) + 1
    shown: list[str] = []
    for pattern, members in groups.items():
        if len(members) == 1 or not re.search("[a-z]", pattern, re.IGNORECASE):  # `*` alone says nothing
            shown.extend(name or "the model itself" for name in members)
        elif every.get(pattern, 0) > len(members):
            shown.append(f"{pattern} ({len(members)} of {every[pattern]})")
        else:
            shown.append(pattern)
    return shown
