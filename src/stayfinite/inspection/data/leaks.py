"""Compare validation with training data: shared rows, shared ids, foreign characters."""

from __future__ import annotations

from dataclasses import dataclass

from stayfinite.inspection.data import column_names as names
from stayfinite.inspection.data.copies import Twins, shared_between, twins_in
from stayfinite.inspection.data.split import Split

COMMON, COMMON_ROWS = 0.01, 10  # share and minimum number of rows that make a character common
EXPECTED = 50
"""Expected occurrences of a character in the training data if both were written alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Overlap of the two splits."""

    text: Twins
    """Validation rows that also occur in the training data, without short ones."""
    short: int
    """Number of short ones."""
    text_share: float
    """Share of validation rows; short ones count only beyond chance."""
    ids: Twins | None
    """Validation rows with an id from the training data; None if ids are not meaningful."""
    id_share: float
    id_note: str
    """Why ids were not judged."""


def leak_between(train: Split, held: Split) -> Leak:
    """Compare validation rows with training rows."""
    rows = max(1, held.rows)
    text = shared_between(train.long_rows, held.long_rows)
    short = shared_between(train.short_rows, held.short_rows).copies.count
    # Short rows of independent splits coincide about as often as within one split.
    usual = twins_in(train.short_rows).twinned / max(1, len(train.short_rows))
    surplus = max(0.0, short - min(1.0, 1.5 * usual + 0.05) * len(held.short_rows))
    ids, note = _by_id(train, held)
    return Leak(
        text=text,
        short=short,
        text_share=(text.copies.count + surplus) / rows,
        ids=ids,
        id_share=ids.copies.count / rows if ids is not None else 0.0,
        id_note=note,
    )


def foreign_characters(train: Split, held: Split) -> dict[str, int]:
    """Characters that the training text lacks beyond chance, with their number of validation texts.

    Rows are counted instead of characters, because one row may be full of a rare character.
    """
    if held.writing.rows_with is None:
        return {}
    ratio = train.writing.total / max(1, held.writing.total)
    least = max(COMMON_ROWS, COMMON * held.rows)
    return {
        character: rows
        for character, rows in held.writing.rows_with.most_common()
        if rows >= least
        and not character.isascii()
        and not train.writing.characters.get(character)
        and held.writing.characters[character] * ratio >= EXPECTED
    }


def _by_id(train: Split, held: Split) -> tuple[Twins | None, str]:
    roles = train.roles
    if roles is None or roles.group is None or not len(train.groups) or not len(held.groups):
        return None, ""
    shared = shared_between(train.groups, held.groups)
    if not shared.copies.count:
        return shared, ""
    if roles.group_given:
        return shared, ""
    share = f"{shared.copies.count:,} rows share a {roles.group} with the training data"
    unique = not twins_in(train.groups).copies.count
    if unique and _counted(train) and _counted(held):
        return None, f"{roles.group} restarts in each file"
    if unique or names.SPLITS_BY.match(names.plain(roles.group)):
        return shared, ""
    return None, f"{share}; --id {roles.group} reports it as a finding"


def _counted(split: Split) -> bool:
    """Whether the ids are row numbers: 0, 1, 2, ..."""
    count, smallest, largest = split.counters
    return count == len(split.groups) and smallest <= 1 and largest - smallest < 1.5 * count + 5
