"""Search many short texts for hundreds of patterns, most of which do not occur.

Texts and patterns are lowercased once, because ignoring case is slow in `re`; each pattern is first searched in all
texts at once. Results are cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from stayfinite.core.lazy_regex import lazy_regex

Item = TypeVar("Item")

LONGEST = 2_000
"""Characters searched per text."""

MOST = 250_000
"""Characters in total. Beyond that, texts about trouble come first."""

FEW = 200
"""Texts that are remembered one by one where they come again."""

_TROUBLE = lazy_regex(
    r"error|exception|traceback|warn|fail|assert|overflow|nan|inf\b|skip|mismatch|killed|memory|xid|ecc|corrupt|"
    r"nccl|cuda|missing|unexpected|invalid|not "
)
_BREAK = "\n\x00\n"


class Haystack(Generic[Item]):
    """Texts, each with its item; `recurring` if the next look and the next run have mostly the same."""

    def __init__(self, texts: Sequence[tuple[str, Item]], *, recurring: bool = False) -> None:
        lowered = [(text[:LONGEST].lower(), item) for text, item in texts]
        self._texts = lowered if sum(len(text) for text, _ in lowered) <= MOST else _chosen(lowered)
        self._all = _BREAK.join(text for text, _ in self._texts)
        self._remembered = recurring and len(self._texts) <= FEW
        self._answers: dict[str, list[Item]] = {}

    def matching(self, pattern: str) -> list[Item]:
        """The items whose texts match the pattern, in order; case is ignored."""
        found = self._answers.get(pattern)
        if found is None and self._remembered:
            search = _remembering(pattern)
            found = self._answers[pattern] = [item for text, item in self._texts if search(text)]
        elif found is None:
            # Compiling costs more than searching: a pattern without a match needs one expression, an empty haystack
            # none.
            somewhere = bool(self._texts) and _compiled(pattern, re.MULTILINE)(self._all)
            found = [item for text, item in self._texts if _compiled(pattern)(text)] if somewhere else []
            self._answers[pattern] = found
        return found


def _chosen(texts: list[tuple[str, Item]]) -> list[tuple[str, Item]]:
    """As many texts as fit, those about trouble first, in order."""
    troubled = [bool(_TROUBLE.search(text)) for text, _ in texts]
    room, kept = MOST, set()
    for wanted in (True, False):
        for index, (text, _) in enumerate(texts):
            if troubled[index] is wanted and len(text) <= room:
                room -= len(text)
                kept.add(index)
    return [texts[index] for index in sorted(kept)]


@lru_cache(maxsize=1024)
def _remembering(pattern: str) -> Callable[[str], object]:
    return lru_cache(maxsize=1024)(_compiled(pattern))


@lru_cache(maxsize=4096)
def _compiled(pattern: str, flags: int = 0) -> Callable[[str], object]:
    # Lowercasing an escape would change it: \W is not \w.
    lowered = re.sub(r"(\\.)|([A-Z])", lambda found: found.group(1) or found.group(2).lower(), pattern)
    return re.compile(lowered, flags).search
