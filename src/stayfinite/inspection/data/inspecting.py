"""``stayfinite check --data``: check training data before training."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stayfinite.core.settings import Setting, Settings
from stayfinite.errors import UsageError
from stayfinite.inspection.data import tables, telling
from stayfinite.inspection.data.headers import WRITTEN, is_header
from stayfinite.inspection.data.split import Progress, Split, Wanted
from stayfinite.inspection.data.telling import foreign_characters, leak_between
from stayfinite.inspection.data.tokenizers import Tokenizer, tokenizer_of
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.notes import Notes
from stayfinite.readers.data.arrow_rows import hub_source, is_hub
from stayfinite.readers.data.chunk import Source
from stayfinite.readers.data.opening import beginnings, open_data, told_beginnings


def inspect_data(
    paths: Sequence[str],
    *,
    val: Sequence[str] = (),
    tokenizer: str | None = None,
    max_length: int | None = None,
    source: str | None = None,
    target: str | None = None,
    group: str | None = None,
    whole: bool = False,
    progress: Progress | None = None,
) -> Inspection:
    """Read data once, in bounded memory, and let the rules judge it.

    Arguments:
        paths: training data files or directories.
        val: validation data, in any format.
        tokenizer: `bytes`, a directory, a tokenizer.json, a SentencePiece model, or a name in the local cache.
        max_length: truncation limit in tokens; in bytes for byte models.
        source: the input column; guessed if omitted, as are the next two.
        target: the column of the target text or label.
        group: the id column that must not overlap between training and validation.
        whole: read everything; otherwise only the beginnings of files that exceed 1 GiB together.
        progress: called as ``progress(name, done, total)`` in bytes.
    """
    if max_length is not None and max_length < 1:
        raise UsageError(f"--max-length {max_length}: expected a number of tokens above 0")
    known = tokenizer_of(tokenizer) if tokenizer is not None else None
    limit = max_length or (known.limit if known is not None else None)
    wanted = Wanted(source=source, target=target, group=group, tokenizer=known, limit=limit)
    opened = {"training": _opened(paths)} | ({"validation": _opened(val)} if val else {})
    splits = [
        Split(name, wanted, files if whole else beginnings(files)) for name, files in opened.items()
    ]  # fmt: skip
    splits[0].read(progress)
    for held in splits[1:]:
        held.writing.rows_with = Counter()
        held.beginning = splits[0].beginning  # a row must be short in both splits, or in none
        held.read(progress, splits[0].roles)
    parts = {split.name: told_beginnings(opened[split.name], split.sources) for split in splits}
    return _concluded(splits, known, limit, parts)


def _opened(names: Sequence[str]) -> list[Source]:
    found = [hub_source(name) for name in names if is_hub(name)]
    paths = [name for name in names if not is_hub(name)]
    return found + (open_data(paths) if paths else [])


def _concluded(
    splits: list[Split], tokenizer: Tokenizer | None, limit: int | None, parts: Mapping[str, str]
) -> Inspection:
    train, held = splits[0], splits[1] if len(splits) > 1 else None
    notes = Notes()
    _banner(splits, tokenizer, limit, notes)
    for name, part in parts.items():
        if part:
            notes.heading(f"{name} read", part)
    leak = leak_between(train, held) if held is not None else None
    lost = None if tokenizer is None or train.tokens is None else tables.lost_characters(train, tokenizer.measure)
    telling.tell_rows(splits, notes)
    if train.rows:
        telling.tell_copies(splits, leak, notes)
        telling.tell_writing(splits, notes)
        if held is not None:
            telling.tell_difference(held, foreign_characters(train, held), notes)
        telling.tell_tokens(splits, lost, notes)
        if train.roles is not None and train.roles.kind != "table":
            telling.tell_lengths(splits, limit, notes)
        telling.tell_classes(splits, notes)
        telling.tell_numbers(splits, notes)
    drawn = (
        tables.lengths_table(splits),
        *map(tables.damage_table, splits),
        tables.scripts_table(train),
        tables.mixture_table(train),
        tables.characters_table(train, lost),
        tables.classes_table(train, held) if "labels.largest_share" in notes.observed else None,
        tables.numbers_table(train),
    )
    notes.tables += [table for table in drawn if table is not None and table.rows]
    settings = _positions(train, tokenizer, limit, notes)
    return conclude(_writable(notes), settings)


def _writable(notes: Notes) -> Notes:
    """The notes without lone surrogates, which terminals and JSON readers reject."""
    return Notes(
        observed={name: replace(seen, value=_shown(seen.value)) for name, seen in notes.observed.items()},
        checks=[replace(check, seen=_shown(check.seen)) for check in notes.checks],
        banner=[(_shown(name), _shown(text)) for name, text in notes.banner],
        tables=[replace(table, rows=tuple(tuple(map(_shown, row)) for row in table.rows)) for table in notes.tables],
    )


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return list(map(_shown, value)) if isinstance(value, list) else value


def _banner(splits: list[Split], tokenizer: Tokenizer | None, limit: int | None, notes: Notes) -> None:
    for split in splits:
        files = [source.path.name for source in split.sources]
        shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        notes.heading(
            split.name,
            f"{shown} ({split.format or split.sources[0].kind}), {split.rows:,} row{'' if split.rows == 1 else 's'}",
        )
    roles = splits[0].roles
    if roles is not None:
        how = "" if roles.given else "; guessed, override with --source and --target"
        sure = roles.given or bool(roles.numbers) or is_header(splits[0].columns)
        if splits[0].sources[0].kind in WRITTEN and not sure:
            how += ". The first row is read as column names, none of them usual: add a header row if it is data"
        notes.heading("columns", (roles.told() or ", ".join(splits[0].columns)) + how)
    if tokenizer is not None:
        size = f", {tokenizer.rows:,} ids" if tokenizer.rows is not None else ""
        sides = splits[0].tokens
        together = "; prompt and answer in one text" if sides is not None and sides.joined else ""
        notes.heading("tokenizer", f"{tokenizer.name}{size}{together}")
    if limit is not None:
        notes.heading("limit", f"{limit:,} {tokenizer.measure.unit if tokenizer is not None else 'tokens'}")
    remarks = [remark for split in splits for source in split.sources[:3] for remark in source.remarks]
    if remarks:
        notes.heading("read", "; ".join(dict.fromkeys(remarks)))


def _positions(train: Split, tokenizer: Tokenizer | None, limit: int | None, notes: Notes) -> Settings | None:
    """The model's position table, if the data exceeds it."""
    if tokenizer is None or tokenizer.positions is None or train.tokens is None or limit is None:
        return None
    tokens = train.tokens
    longest = tokens.whole if tokens.joined else max(tokens.source, tokens.target, key=lambda side: side.longest)
    notes.saw("data.longest_row", min(longest.longest, limit), train.places.of(longest.longest_row))
    return Settings([Setting("max_position_embeddings", tokenizer.positions, "config.json")])
