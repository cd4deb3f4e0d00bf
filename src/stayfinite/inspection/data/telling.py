"""Compare the splits, and turn statistics into facts for the rules and check list lines."""

import re
from dataclasses import dataclass

from stayfinite.inspection.data import column_names as names
from stayfinite.inspection.data.places import FIRST, Tally, Twins, shared_between, twins_in
from stayfinite.inspection.data.split import Split
from stayfinite.inspection.data.writing import KINDS
from stayfinite.inspection.notes import Notes

COMMON, COMMON_ROWS = 0.01, 10  # share and minimum number of rows that make a character common
ONE_ROW = 0.95
"""Ids per different row above which an id stands for one row."""
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
    same_id: Twins
    """Short ones that have the id of their original, too."""
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
    same_id = _copied_with_id(train, held)
    ids, note = _by_id(train, held, same_id)
    share = (text.copies.count + max(surplus, same_id.copies.count)) / rows
    return Leak(
        text=text,
        short=short,
        text_share=1.0 if _same_files(train, held) else share,
        same_id=same_id,
        ids=ids,
        id_share=ids.copies.count / rows if ids is not None else 0.0,
        id_note=note,
    )


def _same_files(train: Split, held: Split) -> bool:
    """Whether the validation files are among those of the training data."""
    files = [{source.path.resolve() for source in split.sources} for split in (train, held)]
    return held.rows > 0 and files[1] <= files[0]


def _copied_with_id(train: Split, held: Split) -> Twins:
    """Short rows that are in both splits under one id; none where that may be chance."""
    rows = len(train.short_rows_with_id)
    if not rows or not len(held.short_rows_with_id):
        return Twins()
    pairs = twins_in(train.short_rows_with_id)
    ids = rows - twins_in(train.short_ids).copies.count
    if ids < ONE_ROW * (rows - pairs.copies.count):
        return Twins()  # an id has several rows, such as a speaker's
    shared = shared_between(train.short_rows_with_id, held.short_rows_with_id)
    chance = (twins_in(train.short_rows).twinned - pairs.twinned) / rows
    by_chance = min(1.0, 1.5 * max(0.0, chance)) * len(held.short_rows_with_id)
    return shared if shared.copies.count > by_chance else Twins()


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


def _by_id(train: Split, held: Split, same_id: Twins) -> tuple[Twins | None, str]:
    roles = train.roles
    if roles is None or roles.group is None or not len(train.groups) or not len(held.groups):
        return None, ""
    shared = shared_between(train.groups, held.groups)
    if not shared.copies.count:
        return shared, ""
    if roles.group_given:
        return shared, ""
    if 2 * same_id.copies.count > shared.copies.count:
        return shared, ""
    article = "an" if roles.group[:1].lower() in "aeio" else "a"
    share = f"{shared.copies.count:,} rows share {article} {roles.group} with the training data"
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


MOST_BAD = 8


def tell_rows(splits: list[Split], notes: Notes) -> None:
    """Number of rows, and rows without anything to learn."""
    train = splits[0]
    notes.saw("data.rows", train.rows, train.sources[0].path.name)
    bad = [text for split in splits for text in _bad_rows(split)]
    if bad:
        place = re.match(r".+?:\d+", bad[0])
        notes.saw("data.bad_rows", bad, place.group() if place else "")
    rows = ", ".join(f"{split.rows:,} rows ({split.name})" for split in splits)
    elsewhere = [f"{name} {count:,}" for name, count in train.elsewhere.most_common(4)]
    more = f"; empty but harmless: {', '.join(elsewhere)}" if elsewhere else ""
    notes.check("Rows", "row completeness", "bad-data-row", "empty-batch", seen=rows + more)


def _bad_rows(split: Split) -> list[str]:
    problems = [f"{name}:{broken.line} {broken.why}" for name, broken in split.broken[:FIRST]]
    if split.broken_count > len(problems):
        problems.append(f"{split.broken_count - len(problems):,} more broken")
    problems += [f"{split.places.tallied(tally)}: {name} is missing or empty" for name, tally in split.missing.items()]
    for name, numbers in split.numbers.items():
        if numbers.not_finite.count:
            problems.append(f"{split.places.tallied(numbers.not_finite)}: {name} is NaN or inf")
        if numbers.gaps.count and _counts(split, name):
            problems.append(f"{split.places.tallied(numbers.gaps)}: {name} is missing")
        if numbers.words.count and numbers.words.count <= 0.05 * max(1, split.rows) and _counts(split, name):
            problems.append(f"{split.places.tallied(numbers.words)}: {name} is not a number")
    if split.ids is not None and split.ids.empty.count:
        problems.append(f"{split.places.tallied(split.ids.empty)}: no token ids")
    more = len(problems) - MOST_BAD
    return [*problems[:MOST_BAD], f"and {more} more kinds"] if more > 0 else problems


def _counts(split: Split, name: str) -> bool:
    """Whether the column is used as data, unlike an id or a date."""
    roles = split.roles
    return roles is not None and name not in (*split.missing, roles.group) and not _is_no_feature(name)


def _is_no_feature(name: str) -> bool:
    return names.NO_FEATURE.match(names.plain(name)) is not None


def tell_copies(splits: list[Split], leak: Leak | None, notes: Notes) -> None:
    """Duplicates within the training data and between the splits."""
    train = splits[0]
    twins = twins_in(train.long_rows)
    short = twins_in(train.short_rows).copies.count
    share = twins.copies.count / max(1, train.rows)
    pairs = _paired(train, train, twins)
    notes.saw("data.duplicate_share", share, pairs)
    seen = f"{twins.copies.count:,} copies ({share:.1%})" + (f": {pairs}" if pairs else "")
    seen += f"; {short:,} short copies ignored" if short else ""
    notes.check("Rows", "duplicate rows", "duplicate-rows", seen=seen)
    if leak is None:
        notes.check("Rows", "train/validation overlap", skipped="no --val given")
        return
    held = splits[1]
    pairs = _paired(held, train, leak.text) or _paired(held, train, leak.same_id)
    notes.saw("data.overlap_share", leak.text_share, pairs)
    if leak.ids is not None:
        notes.saw("data.id_overlap_share", leak.id_share, _paired(held, train, leak.ids))
    seen = f"{leak.text.copies.count:,} validation rows are in the training data ({leak.text_share:.1%})"
    seen += f", and {leak.short:,} short ones, {_why(leak)}" if leak.short else ""
    if leak.ids is not None:
        seen += f"; {leak.ids.copies.count:,} by id"
    seen += f"; {leak.id_note}" if leak.id_note else ""
    notes.check("Rows", "train/validation overlap", "train-val-overlap", seen=seen)


def _why(leak: Leak) -> str:
    return f"{leak.same_id.copies.count:,} under the same id" if leak.same_id.copies.count else "likely by chance"


def _paired(split: Split, train: Split, twins: Twins) -> str:
    """The first duplicates with their originals: `val.csv:3 as train.csv:17`."""
    pairs = zip(twins.copies.rows[:3], twins.originals, strict=False)
    return ", ".join(f"{split.places.of(row)} as {train.places.of(first)}" for row, first in pairs)


def tell_writing(splits: list[Split], notes: Notes) -> None:
    """Damaged text."""
    if not any(split.writing.total for split in splits):
        return
    worst = max(splits, key=lambda split: split.writing.damaged.count / max(1, split.rows))
    damaged = worst.writing.damaged
    share = damaged.count / max(1, worst.rows)
    kinds = ", ".join(
        f"{KINDS[kind]} in {tally.count:,} rows" for kind, tally in worst.writing.damage.items() if tally.count
    )
    notes.saw("data.damaged_text_share", share, worst.places.tallied(damaged) if damaged.count else "")
    if kinds:
        notes.saw("data.damage_kinds", kinds)
    wrong = [source.encoding for split in splits for source in split.sources if source.encoding]
    if wrong:
        notes.saw("data.not_utf8", wrong[0] + (f", and {len(wrong) - 1} more files" if len(wrong) > 1 else ""))
    beyond = splits[0].writing.characters
    seen = f"{len(beyond):,} different characters beyond ASCII" if beyond else "ASCII only"
    seen += f"; {kinds}: {worst.places.tallied(damaged)}" if kinds else ""
    notes.check("Text", "text encoding", "corrupt-encoding", seen=seen)


def tell_difference(held: Split, foreign: dict[str, int], notes: Notes) -> None:
    """Characters that only the validation data has."""
    if not held.writing.total:
        return
    if foreign:
        notes.saw("data.foreign_characters", list(foreign)[:12])
        notes.saw("data.foreign_rows_share", max(foreign.values()) / max(1, held.rows), held.sources[0].path.name)
    seen = "no character is common in one split and absent in the other"
    notes.check("Text", "consistency between splits", "splits-written-differently", seen=seen)


def tell_tokens(splits: list[Split], lost: dict[str, str | None] | None, notes: Notes) -> None:
    """Unknown tokens, and ids beyond the embedding."""
    train = splits[0]
    tokens = train.tokens
    if tokens is not None:
        share = tokens.unknown / max(1, tokens.tokens)
        places = train.places.tallied(tokens.with_unknown) if tokens.with_unknown.count else ""
        unknown = [c for c, back in (lost or {}).items() if back is None]
        if tokens.unknown:
            notes.saw("data.unknown_token_share", share, places)
            if unknown:
                notes.saw("data.unknown_characters", unknown[:20])
        seen = f"{share:.2%} of the tokens are unknown" if tokens.tokenizer.measure.unknown else "every token known"
        changed = [f"{c} becomes {back}" for c, back in (lost or {}).items() if back]
        seen += f"; unknown: {' '.join(unknown[:12])}" if unknown else ""
        seen += f"; {len(changed)} characters change ({', '.join(changed[:3])})" if changed else ""
        seen += f"; from every {tokens.every}th row" if tokens.every > 1 else ""
        notes.check("Text", "tokenizer coverage", "tokenizer-mismatch", seen=seen)
    ids = train.ids if train.ids is not None else tokens
    rows = tokens.tokenizer.rows if tokens is not None else train.ids.size if train.ids is not None else None
    if ids is None or (rows is None and train.ids is None):
        return
    for split in splits:
        found = split.ids or split.tokens
        if found is not None and found.outside_rows.count:
            notes.saw("data.token_ids_out_of_range", sorted(found.outside), split.places.tallied(found.outside_rows))
            break
    known = f"{rows:,} rows in the embedding" if rows is not None else "no --tokenizer: only negative ids are found"
    largest = f"largest id {train.ids.largest:,}; " if train.ids is not None else ""
    notes.check("Text", "token ids", "token-id-out-of-range", seen=largest + known)


def tell_lengths(splits: list[Split], limit: int | None, notes: Notes) -> None:
    """What the length limit truncates, and what it leaves to learn."""
    train = splits[0]
    tokens, ids = train.tokens, train.ids
    counted = ids if tokens is None else tokens
    if limit is None:
        notes.check("Lengths", "row lengths", skipped="no --max-length given")
    elif counted is not None or train.words.rows:
        if counted is not None:
            cut = counted.cut
            share = cut.count / max(1, train.rows if tokens is None else tokens.rows)
            unit = tokens.tokenizer.measure.unit if tokens is not None else "tokens"
            seen = f"{share:.1%} of the rows are longer than {limit:,} {unit}"
        else:
            cut, share = train.words.over, train.words.cut
            seen = f"at least {share:.1%} are longer than {limit:,} by word count; --tokenizer counts exactly"
        notes.saw("data.truncated_share", share, train.places.tallied(cut))
        notes.check("Lengths", "row lengths", "truncation", seen=seen)
    _tell_labels(train, limit, notes)


def _tell_labels(train: Split, limit: int | None, notes: Notes) -> None:
    """Rows with nothing left to learn."""
    tokens, ids, roles = train.tokens, train.ids, train.roles
    masked = Tally(train.unanswered.count, list(train.unanswered.rows))
    rows, looked = train.rows, roles is not None and roles.kind == "chat"
    reasons = [f"{masked.count:,} conversations have no answer"] if masked.count else []
    if tokens is not None and tokens.joined and limit is not None:
        looked = True
        if tokens.masked.count:
            reasons.append(f"{tokens.masked.count:,} prompts alone reach the limit of {limit:,}")
            masked.count += tokens.masked.count * tokens.every
            masked.rows = sorted({*masked.rows, *tokens.masked.rows})[:FIRST]
    if ids is not None and ids.labels:
        looked = True
        masked = ids.masked
        reasons = [f"{masked.count:,} rows have only -100"] if masked.count else []
        if not ids.supervised:
            notes.saw("labels.supervised_share", 0.0, train.places.tallied(ids.masked))
    if not looked:
        return
    share = masked.count / max(1, rows)
    if masked.count:
        notes.saw("labels.masked_rows_share", share, train.places.tallied(masked))
    seen = "; ".join(reasons) + f" ({train.places.tallied(masked)})" if reasons else "every row has an answer"
    notes.check("Lengths", "rows with labels", "all-labels-masked", seen=seen)


def tell_classes(splits: list[Split], notes: Notes) -> None:
    """Class imbalance."""
    train, roles = splits[0], splits[0].roles
    classes = train.classes
    if roles is None or roles.target is None or not _are_classes(train):
        return
    name, count = classes.most_common(1)[0]
    share = count / classes.total()
    notes.saw("labels.largest_share", share, f"{roles.target} = {name[:40]}")
    new = [] if len(splits) == 1 else [name for name in splits[1].classes if name not in classes]
    seen = f"{len(classes):,} classes, the largest ({name[:40]}) {share:.1%}"
    seen += f"; only in validation: {', '.join(sorted(new)[:5])}" if new else ""
    notes.check("Labels", "class balance", "label-imbalance", seen=seen)


def _are_classes(train: Split) -> bool:
    """Whether a few values repeat; continuous or mostly unique values are not classes."""
    roles, classes = train.roles, train.classes
    if roles is None or not classes or classes.total() < 20:
        return False
    if roles.kind == "classes" and roles.target not in train.numbers:
        return True
    numbers = train.numbers.get(roles.target or "")
    whole = numbers is None or all(_whole(name) for name in list(classes)[:100])
    return whole and len(classes) <= min(100, classes.total() // 5)


def _whole(name: str) -> bool:
    try:
        return float(name).is_integer()
    except (ValueError, OverflowError):
        return True


def tell_numbers(splits: list[Split], notes: Notes) -> None:
    """Constant numeric columns."""
    train, roles = splits[0], splits[0].roles
    if roles is None or roles.kind != "table" or not train.numbers:
        return
    constant = [
        name
        for name, column in train.numbers.items()
        if column.constant and name not in (roles.group, roles.target) and not _is_no_feature(name)
    ]
    if constant:
        notes.saw("data.constant_features", constant)
    notes.check("Numbers", "constant features", "constant-feature", seen=f"{len(train.numbers)} columns of numbers")
