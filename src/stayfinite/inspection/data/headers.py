"""Decide whether the first row of a text table holds column names or data."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.data import column_names as names
from stayfinite.inspection.data.values import as_number
from stayfinite.readers.data.shapes import COUNTED, LANGUAGES, is_a_language

WRITTEN = frozenset({"csv", "tsv"})  # file kinds without any other sign of a header
USUAL = frozenset(
    name
    for listed in (names.SOURCES, names.TARGETS, names.TEXTS, names.LABELS, names.CHATS, names.TOKEN_IDS, names.IDS)
    for name in listed
)
WORDS = frozenset({"text", "texts", "sentence", "sentences", "lang", "language", "name", "column", "original"})
"""Words in compound names: `english sentence`."""
FEWEST = 3  # numbers needed below a word for it to be their name
AN_IDENTIFIER = lazy_regex(r"[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*")


def is_header(cells: Iterable[str]) -> bool:
    """Whether this is certainly a header: a common name, an identifier, or two languages."""
    stripped = [cell.strip() for cell in cells]
    if all(map(COUNTED.fullmatch, stripped)):
        return True  # the reader found that the first row is data, and kept it
    return any(map(_is_usual, stripped)) or sum(map(is_a_language, stripped)) > 1


def has_header(columns: Mapping[str, Sequence[Any]]) -> bool:
    """Whether these are certainly column names, by themselves or because numbers follow."""
    return is_header(columns) or any(
        as_number(name) is None and _are_numbers(values) for name, values in columns.items()
    )


def _are_numbers(values: Sequence[Any]) -> bool:
    """Whether there are only numbers and gaps, with enough numbers."""
    read = [as_number(value) for value in values]
    return None not in read and sum(number is not None and math.isfinite(number) for number in read) >= FEWEST


def _is_usual(cell: str) -> bool:
    if names.plain(cell) in USUAL or AN_IDENTIFIER.fullmatch(cell):
        return True
    parts = [part for part in names.plain(cell).split("_") if part]
    # `english sentence`, but not only languages: `so am` may be a row.
    return 1 < len(parts) <= 3 and (USUAL | WORDS | LANGUAGES).issuperset(parts) and not LANGUAGES.issuperset(parts)
