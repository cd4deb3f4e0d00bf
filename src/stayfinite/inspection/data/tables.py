"""Tables of lengths, characters, damage, classes and numbers."""

import unicodedata
from collections import Counter
from collections.abc import Iterator

from stayfinite.inspection.data.columns import Lengths
from stayfinite.inspection.data.split import Split
from stayfinite.inspection.data.tokenizers import Measure
from stayfinite.inspection.data.writing import KINDS, script_of
from stayfinite.inspection.notes import Table

MOST_CHARACTERS = 24
MOST_CLASSES = 12
MOST_SCRIPTS = 12
MOST_COLUMNS = 24
TRIED = 4000  # distinct characters tested with the tokenizer, most frequent first
HIDDEN = "\u00a0\u00ad\u200b\u200c\u200d\u200e\u200f\u202f\u2060\ufeff"
"""Non-breaking spaces, soft hyphens, joiners, direction marks, byte order marks."""
QUOTES = "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a\u02bc\u2032\u00b4\u300c\u300d"


def lost_characters(split: Split, measure: Measure) -> dict[str, str | None]:
    """Characters that the tokenizer changes; None for unknown ones."""
    found: dict[str, str | None] = {}
    for character, _ in split.writing.characters.most_common(TRIED):
        if "\ud800" <= character <= "\udfff":
            continue
        back = measure.spelled(character)
        if back != character and not (character.isspace() and back is not None):
            found[character] = back
    return found


def lengths_table(splits: list[Split]) -> Table:
    """Percentiles of the lengths, one row per side and unit."""
    rows = [row for split in splits for row in _lengths(split)]
    columns = ("rows of", "column", "in", "p50", "p90", "p95", "p99", "longest", "at", "cut")
    return Table(title="Lengths", columns=columns, rows=tuple(rows))


def _lengths(split: Split) -> Iterator[tuple[str, ...]]:
    roles = split.roles
    if roles is None:
        return
    named = {"source": " + ".join(roles.source), "target": roles.target or "answers", "whole": "together"}
    measured: dict[str, list[Lengths]] = {name: [lengths] for name, lengths in split.characters.items()}
    if split.tokens is not None:
        for name in ("source", "target", "whole"):
            measured.setdefault(name, []).append(getattr(split.tokens, name))
    if split.ids is not None:
        measured["ids"] = [split.ids.lengths]
        named["ids"] = roles.tokens[0]
    for name, several in measured.items():
        for lengths in several:
            if lengths.rows:
                figures = [f"{lengths.at(share):,}" for share in (0.5, 0.9, 0.95, 0.99)]
                cut = f"{lengths.cut:.1%}" if lengths.limit is not None else ""
                place = split.places.of(lengths.longest_row)
                yield (split.name, named[name], lengths.unit, *figures, f"{lengths.longest:,}", place, cut)


def scripts_table(split: Split) -> Table:
    """Scripts of the characters beyond ASCII."""
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for character, count in split.writing.characters.items():
        script = script_of(character)
        counts[script] += count
        kinds[script] += 1
    rows = [
        (script, f"{kinds[script]:,}", f"{count:,}", f"{count / max(1, split.writing.total):.2%}")
        for script, count in counts.most_common(MOST_SCRIPTS)
    ]
    return Table(title="Beyond ASCII", columns=("script", "different", "times", "of all"), rows=tuple(rows))


def mixture_table(split: Split) -> Table:
    """Mixed writing conventions: informative, not a fault."""
    writing, rows = split.writing, []
    if writing.decomposed.count and writing.composed:
        where = split.places.tallied(writing.decomposed)
        counts = f"{writing.composed:,} texts composed (NFC), {writing.decomposed.count:,} not: {where}"
        rows.append(("accents", counts))
    quotes = [f"{c} {writing.characters[c]:,}" for c in QUOTES if writing.characters.get(c)]
    if len(quotes) > 1:
        rows.append(("quote characters", ", ".join(quotes)))
    hidden = [f"U+{ord(c):04X} {writing.characters[c]:,}" for c in HIDDEN if writing.characters.get(c)]
    if hidden:
        rows.append(("invisible characters", ", ".join(hidden)))
    return Table(title="Mixed spellings", columns=("what", "count"), rows=tuple(rows))


def characters_table(split: Split, lost: dict[str, str | None] | None) -> Table:
    """Characters beyond ASCII; first those that the tokenizer loses."""
    characters = split.writing.characters
    order = sorted(
        characters,
        key=lambda c: (c not in (lost or {}), lost is not None and lost.get(c, c) is not None, -characters[c], c),
    )
    rows = []
    for character in order[:MOST_CHARACTERS]:
        shown = character if character.isprintable() and not unicodedata.combining(character) else ""
        name = unicodedata.name(character, "no name").lower()
        fate = "" if lost is None else _fate(character, lost)
        rows.append((shown, f"U+{ord(character):04X}", name, f"{characters[character]:,}", fate))
    more = len(order) - len(rows)
    title = "Characters" + (f", {len(rows)} of {len(order):,}" if more else "")
    width = 4 if lost is None else 5
    columns = ("", "code", "name", "times", "tokenizer")[:width]
    return Table(title=title, columns=columns, rows=tuple(row[:width] for row in rows))


def _fate(character: str, lost: dict[str, str | None]) -> str:
    if character not in lost:
        return "kept"
    back = lost[character]
    return "unknown" if back is None else f"becomes {back}" if back.strip() else "dropped"


def damage_table(split: Split) -> Table:
    """Kinds of damage, with one example each."""
    rows = [
        (KINDS[kind], f"{tally.count:,}", split.places.tallied(tally), split.writing.sample[kind])
        for kind, tally in split.writing.damage.items()
        if tally.count
    ]
    columns = ("damage", "rows", "where", "for example")
    return Table(title=f"Damaged text ({split.name})", columns=columns, rows=tuple(rows))


def classes_table(train: Split, held: Split | None) -> Table | None:
    """Frequency of each class."""
    classes = train.classes
    if not 1 <= len(classes) <= 1000:
        return None
    total, other = classes.total(), held.classes.total() if held is not None else 0
    order = [name for name, _ in classes.most_common(MOST_CLASSES)]
    if held is not None:
        order += [name for name, _ in held.classes.most_common() if name not in classes][:MOST_CLASSES]
    rows = []
    for name in order:
        share = f"{held.classes[name] / other:.1%}" if held is not None and other else ""
        rows.append((name[:60], f"{classes[name]:,}", f"{classes[name] / total:.1%}", share))
    if len(classes) > MOST_CLASSES:
        rest = total - sum(count for _, count in classes.most_common(MOST_CLASSES))
        rows.append((f"{len(classes) - MOST_CLASSES} more", f"{rest:,}", f"{rest / total:.1%}", ""))
    return Table(title="Classes", columns=("class", "rows", "share", "in validation"), rows=tuple(rows))


def numbers_table(split: Split) -> Table:
    """Range and gaps of every numeric column."""
    rows = [
        (
            name,
            f"{column.smallest:.6g}" if column.count else "",
            f"{column.largest:.6g}" if column.count else "",
            f"{column.gaps.count:,}",
            f"{column.not_finite.count:,}",
            f"{column.words.count:,}",
        )
        for name, column in list(split.numbers.items())[:MOST_COLUMNS]
    ]
    more = len(split.numbers) - len(rows)
    title = "Numbers" + (f", {len(rows)} of {len(split.numbers)} columns" if more else "")
    columns = ("column", "smallest", "largest", "missing", "not finite", "no numbers")
    return Table(title=title, columns=columns, rows=tuple(rows))
