"""Many short texts in which hundreds of patterns are looked for, most of them in vain.

Everything is lowered once, patterns too, because ignoring case keeps `re` from skipping ahead; and a pattern is first
looked for in all texts at once. Answers are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

Item = TypeVar("Item")

LONGEST = 2_000
"""Characters of one text that are searched."""

MOST = 250_000
"""Characters in all. Where there is more, texts that tell of trouble come first."""

_TROUBLE = re.compile(
    r"error|exception|traceback|warn|fail|assert|overflow|nan|inf\b|skip|mismatch|killed|memory|xid|ecc|corrupt|"
    r"nccl|cuda|missing|unexpected|invalid|not "
)
_BREAK = "\n\x00\n"


class Haystack(Generic[Item]):
    """Texts, each with the item it stands for."""

    def __init__(self, texts: Sequence[tuple[str, Item]]) -> None:
        lowered = [(text[:LONGEST].lower(), item) for text, item in texts]
        self._texts = lowered if sum(len(text) for text, _ in lowered) <= MOST else _chosen(lowered)
        self._all = _BREAK.join(text for text, _ in self._texts)
        self._answers: dict[str, list[Item]] = {}

    def matching(self, pattern: str) -> list[Item]:
        """The items in whose texts the pattern occurs, in their order; case is ignored."""
        found = self._answers.get(pattern)
        if found is None:
            # Compiling costs more than searching: what is nowhere needs one expression, an empty haystack none.
            somewhere = bool(self._texts) and _compiled(pattern, re.MULTILINE)(self._all)
            found = [item for text, item in self._texts if _compiled(pattern)(text)] if somewhere else []
            self._answers[pattern] = found
        return found


def _chosen(texts: list[tuple[str, Item]]) -> list[tuple[str, Item]]:
    """As many as there is room for, those that tell of trouble first, in their order."""
    troubled = [bool(_TROUBLE.search(text)) for text, _ in texts]
    room, kept = MOST, set()
    for wanted in (True, False):
        for index, (text, _) in enumerate(texts):
            if troubled[index] is wanted and len(text) <= room:
                room -= len(text)
                kept.add(index)
    return [texts[index] for index in sorted(kept)]


@lru_cache(maxsize=4096)
def _compiled(pattern: str, flags: int = 0) -> Callable[[str], object]:
    # An escape such as \W means something else than \w.
    lowered = re.sub(r"(\\.)|([A-Z])", lambda found: found.group(1) or found.group(2).lower(), pattern)
    return re.compile(lowered, flags).search
