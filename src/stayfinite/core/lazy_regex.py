"""Regular expressions compiled at their first use: a command loads hundreds and uses a few dozen."""

from __future__ import annotations

import re
from typing import Any, cast


class LazyRegex:
    """Becomes a compiled pattern as soon as one of its methods is needed."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def lazy_regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """Like `re.compile`. An error in the expression shows at its first use."""
    return cast("re.Pattern[str]", LazyRegex(text, flags))
