"""What is trained on, and what is kept back to see how well it was learned."""

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
    """Texts for training and for validation; of the built-in ones without ``data``.

    Arguments:
        val: files for validation; without any, a share of the texts is kept back.

    Raises:
        UsageError: too few are left to train on, or something cannot be read.
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
