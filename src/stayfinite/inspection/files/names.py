"""Setting names: their last part, and the known name closest to a typo."""

import re
from collections.abc import Iterable
from functools import lru_cache

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, plain_name

_STEP = lazy_regex(r"[./]")
_SHORT = 6  # below this length, two typos make a different word


def last_step(setting: Setting) -> str:
    """`optimizer.params.lr` -> `lr`, in comparable form."""
    return _last_step(setting.name)


@lru_cache(maxsize=16_384)
def _last_step(name: str) -> str:
    return plain_name(_STEP.split(name.strip().lstrip("-"))[-1])


def first_steps(setting: Setting) -> str:
    """`optimizer.params.lr` -> `optimizer.params`; empty at the top level."""
    return setting.name.lstrip("-").rpartition(".")[0]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that this is a typo of: one or two letters off, or words in another order."""
    best, least = None, 3
    words = sorted(name.split("_"))
    for other in known:
        if abs(len(other) - len(name)) > 2 or other == name:
            continue
        if sorted(other.split("_")) == words and len(words) > 1:
            return other
        allowed = 2 if min(len(name), len(other)) >= 2 * _SHORT else 1 if min(len(name), len(other)) >= _SHORT else 0
        distance = slips(name, other, most=allowed)
        if distance < least and distance <= allowed and not _differ_in_digits(name, other):
            best, least = other, distance
    return best


def slips(one: str, other: str, *, most: int) -> int:
    """Damerau-Levenshtein distance; ``most + 1`` if larger than ``most``."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if older and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


def _differ_in_digits(one: str, other: str) -> bool:
    """`adam_beta1` and `adam_beta3` are different names."""
    return re.sub(r"\d", "", one) == re.sub(r"\d", "", other)
