"""The history of a training printed at its end: a list of values for each name.

::

    {"loss": [0.71, 0.69, 0.69, 0.69], "val_acc": [0.5, 0.5, 0.5, 0.5]}
    history["loss"] = [nan, nan, nan, nan]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from stayfinite.core.lazy_regex import lazy_regex

_LISTED = lazy_regex(r"['\"](\w{1,40})['\"]\]?\s?[:=]\s?\[((?:[-+.\de]+|nan|inf)(?:,\s?(?:[-+.\de]+|nan|inf)){3,})\]")


def rows_of_history(line: str) -> Iterator[str]:
    """A line as a log would have had it for each epoch."""
    lists = {name: re.split(r",\s?", values) for name, values in _LISTED.findall(line)}
    if not any("loss" in name for name in lists):
        return
    for epoch, row in enumerate(zip_longest(*lists.values()), 1):
        pairs = [f"{name}: {value}" for name, value in zip(lists, row, strict=True) if value is not None]
        yield f"epoch {epoch} - {' - '.join(pairs)}"
