"""Training and validation texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stayfinite.recipes.language.built_in import travel_notes
from stayfinite.recipes.language.texts import check_enough, keep, read_texts, split, without


def corpus(
    data: Sequence[str],
    val: Sequence[str],
    *,
    column: str | None,
    shortest: int,
    share: float,
    say: Callable[[str], None],
) -> tuple[list[str], list[str]]:
    """Texts for training and validation; the built-in ones without ``data``.

    Arguments:
        val: validation files; without any, a share of the texts is held out.

    Raises:
        UsageError: too few texts, or unreadable files.
    """
    where = ", ".join(data) or "the built-in text"
    found = read_texts(data, column=column, shortest=shortest) if data else keep(travel_notes(), shortest=shortest)
    check_enough(found, where)
    for format_, rows in found.formats.items():
        say(f"{where}: {format_}, {rows:,} rows")
    for remark in found.remarks[:5]:
        say(f"note: {remark}")
    if val:
        validation = read_texts(val, column=column, shortest=shortest).texts
        training = without(found.texts, validation)
        check_enough(replace(found, texts=training), f"{where}, without {', '.join(val)}")
    else:
        training, validation = split(found.texts, share)
    say(f"{where}: {found}; {len(training):,} for training, {len(validation):,} for validation")
    return training, validation
