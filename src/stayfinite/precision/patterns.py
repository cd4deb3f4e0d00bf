"""Many names in few words: `decoder.block.*.wo` for those of all blocks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def pattern_of(name: str) -> str:
    """A name with `*` for its numbers."""
    return _NUMBER.sub("*", name)


def collapsed(names: Iterable[str], among: Collection[str] = ()) -> list[str]:
    """Names by pattern, each with `*` for its numbers where several differ in nothing else.

    Arguments:
        names: those that are meant.
        among: all names there are; a pattern stands alone only where it says no more than it should, else the number
            of those meant is said: `blocks.*.wo (3 of 12)`.
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
