"""The validation data held against the training data: rows of both, by text and by id; characters of one alone."""

from __future__ import annotations

from dataclasses import dataclass

from stayfinite.inspection.data import column_names as names
from stayfinite.inspection.data.copies import Twins, shared_between, twins_in
from stayfinite.inspection.data.split import Split

COMMON, COMMON_ROWS = 0.01, 10
"""Rows, as a share and at least so many, that make a character common."""
EXPECTED = 50
"""Times that a character would be met in the training data if both were written alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """What both splits share."""

    text: Twins
    """Rows of the validation that stand in the training data as they are, short ones left out."""
    short: int
    """Short ones."""
    text_share: float
    """Of all validation rows; short ones count as far as they are more than chance would bring."""
    ids: Twins | None
    """Rows of the validation whose id the training data has; None where ids say nothing."""
    id_share: float
    id_note: str
    """What to say of the ids where they are not judged."""


def leak_between(train: Split, held: Split) -> Leak:
    """Hold the validation rows against the training rows."""
    rows = max(1, held.rows)
    text = shared_between(train.long_rows, held.long_rows)
    short = shared_between(train.short_rows, held.short_rows).copies.count
    # Short rows of two honest splits coincide about as often as those within one.
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
    """Characters that the training text never has and should have by chance, and in how many validation texts they are.

    A single row may be full of a character that is met nowhere else: so rows are counted, not characters.
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
    """Whether the ids are the numbers of the rows: 0, 1, 2, ..."""
    count, smallest, largest = split.counters
    return count == len(split.groups) and smallest <= 1 and largest - smallest < 1.5 * count + 5
