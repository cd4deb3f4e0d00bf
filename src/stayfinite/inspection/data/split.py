"""Read one split of the data once and collect its statistics."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.errors import UsageError
from stayfinite.inspection.data.columns import MOST_ROWS, Lengths, Numbers, TokenIds, Tokens
from stayfinite.inspection.data.places import SHORT, Keys, Places, Tally, bare
from stayfinite.inspection.data.roles import Roles, listed, roles_of
from stayfinite.inspection.data.tokenizers import Tokenizer
from stayfinite.inspection.data.values import as_text, missing
from stayfinite.inspection.data.writing import Writing
from stayfinite.readers.data.chunk import Broken, Chunk, Source
from stayfinite.readers.data.opening import told
from stayfinite.readers.data.shapes import conversation, is_chat

Progress = Callable[[str, int, int], None]
MOST_CLASSES = 10_000
_COUNTER = lazy_regex(r"\d{1,18}$", re.ASCII)
LINE = 80  # characters above which two equal lines of plain text are not a coincidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The user's options."""

    source: str | None = None
    target: str | None = None
    group: str | None = None
    tokenizer: Tokenizer | None = None
    limit: int | None = None


@dataclass(slots=True)
class Split:
    """Statistics of a split's rows; texts are not kept."""

    name: str
    wanted: Wanted
    sources: Sequence[Source]
    roles: Roles | None = None
    columns: tuple[str, ...] = ()
    format: str = ""
    """Format of the first file, in words."""
    places: Places = field(default_factory=Places)
    broken: list[tuple[str, Broken]] = field(default_factory=list)
    broken_count: int = 0
    missing: dict[str, Tally] = field(default_factory=dict)
    """Rows without a value, by required column."""
    elsewhere: Counter[str] = field(default_factory=Counter)
    """Missing values in other columns, and harmless empty texts."""
    unanswered: Tally = field(default_factory=Tally)
    """Conversations without an answer."""
    long_rows: Keys = field(default_factory=Keys)
    short_rows: Keys = field(default_factory=Keys)
    beginning: int | None = None
    """Length of the prefix shared by all rows, in letters."""
    groups: Keys = field(default_factory=Keys)
    short_ids: Keys = field(default_factory=Keys)
    """Ids of the short rows."""
    short_rows_with_id: Keys = field(default_factory=Keys)
    """Short rows together with their ids: they coincide by copying, not by chance."""
    counters: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Integer ids: count, smallest, largest."""
    writing: Writing = field(default_factory=Writing)
    characters: dict[str, Lengths] = field(default_factory=dict)
    words: Lengths = field(default_factory=lambda: Lengths("words"))
    classes: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, Numbers] = field(default_factory=dict)
    tokens: Tokens | None = None
    ids: TokenIds | None = None
    _reading: Source = field(init=False, repr=False)
    _ids: list[str] = field(default_factory=list, repr=False)
    """Ids of the chunk being read."""

    @property
    def rows(self) -> int:
        return len(self.places)

    @property
    def _known_roles(self) -> Roles:
        """The roles, once the first rows were read."""
        assert self.roles is not None
        return self.roles

    def read(self, progress: Progress | None = None, roles: Roles | None = None) -> None:
        self.roles = roles
        total = sum(source.share for source in self.sources)
        before = 0
        for source in self.sources:
            self._reading = source
            for chunk in source.chunks():
                self._take(chunk, total)
                if progress is not None:
                    progress(self.name, min(total, before + chunk.done), max(1, total))
            before += source.share

    def _take(self, chunk: Chunk, total: int) -> None:
        self.broken_count += len(chunk.broken)
        self.broken += [(chunk.path.name, broken) for broken in chunk.broken[: max(0, 5 - len(self.broken))]]
        if not chunk.lines:
            return
        if self.roles is None:
            wanted = self.wanted
            self.roles = roles_of(chunk.columns, source=wanted.source, target=wanted.target, group=wanted.group)
        if not self.columns:
            self.columns = tuple(chunk.columns)
            self.format = told(self._reading, chunk.columns)
            self._check_columns(chunk)
            self._begin(len(chunk.lines), total, max(1, chunk.done))
        first = len(self.places)
        self.places.take(chunk)
        self._rows(first, chunk)

    def _check_columns(self, chunk: Chunk) -> None:
        roles = self._known_roles
        needed = [*roles.source[:1], *filter(None, [roles.target]), *roles.tokens]
        needed += [roles.group] if roles.group_given and roles.group is not None else []
        lacking = [name for name in needed if name not in chunk.columns]
        if lacking:
            raise UsageError(
                f"{chunk.path.name} has no column {lacking[0]!r}, which the training data has; "
                f"it has {listed(tuple(chunk.columns), 20)}",
                fix="use the same column names",
            )

    def _begin(self, rows: int, total: int, done: int) -> None:
        roles, wanted = self._known_roles, self.wanted
        if roles.kind == "tokens":
            size = wanted.tokenizer.rows if wanted.tokenizer is not None else None
            self.ids = TokenIds(size, Lengths("tokens", wanted.limit))
        elif wanted.tokenizer is not None and roles.source:
            joined = roles.kind in ("chat", "prompts") and not wanted.tokenizer.two_sided
            guess = rows * total // done
            cheap = wanted.tokenizer.measure.unit == "bytes"
            every = 1 if cheap else max(1, -(-guess // MOST_ROWS))
            self.tokens = Tokens.begin(wanted.tokenizer, wanted.limit, joined=joined, every=every)
        if roles.kind == "table":
            self.numbers = {name: Numbers() for name in roles.numbers}
        elif roles.target is not None and roles.target in roles.numbers:
            self.numbers = {roles.target: Numbers()}

    def _rows(self, first: int, chunk: Chunk) -> None:
        roles, columns = self._known_roles, chunk.columns
        count = len(chunk.lines)
        for name in columns.keys() - self._judged():
            gaps = sum(value is None or value == "" for value in columns[name])
            if gaps:
                self.elsewhere[name] += gaps
        if self.ids is not None:
            self.ids.take(first, {name: columns[name] for name in roles.tokens if name in columns})
            raws = [repr(ids).encode("utf-8", "surrogatepass") for ids in columns.get(roles.tokens[0], ())]
            self._remember(first, raws, 0)
            return
        for name, numbers in self.numbers.items():
            numbers.take(first, columns.get(name, [None] * count))
        self._group(first, columns)
        if roles.kind == "table":
            self._table(first, columns)
            return
        source, target = self._texts(first, columns, count)
        text_target = target if roles.kind != "classes" else None
        if roles.kind != "chat":
            # The same text with another label is still a duplicate.
            self._copies(first, source, text_target)
        shown = [source] if text_target is None else [source, text_target]
        self.writing.take(first, shown)
        for name, texts in zip(("source", "target"), shown, strict=False):
            lengths = self.characters.setdefault(name, Lengths("characters"))
            lengths.take(range(first, first + count), list(map(len, texts)))
        if self.tokens is not None:
            self.tokens.take(first, source, text_target)
        elif self.wanted.limit is not None:
            self.words.limit = self.wanted.limit
            words = [max(len(text.split()) for text in row) for row in zip(*shown, strict=True)]
            self.words.take(range(first, first + count), words)
        if roles.kind == "classes" and target is not None:
            self._count_classes(target)

    def _judged(self) -> set[str]:
        roles = self._known_roles
        return {*roles.source, *filter(None, [roles.target]), *self.numbers, *roles.tokens}

    def _texts(self, first: int, columns: dict[str, list[Any]], count: int) -> tuple[list[str], list[str] | None]:
        """Source and target of each row as texts; rows that lack one are counted."""
        roles = self._known_roles
        blank: list[Any] = [None] * count
        values = columns.get(roles.source[0], blank)
        if roles.kind == "chat":
            parts = list(map(conversation, values))
            for row, part in enumerate(parts, first):
                if not part.whole.strip():
                    self._lacks(roles.source[0], row)
                elif not part.answers.strip():
                    self.unanswered.add(row)
            self._copies(first, [part.spoken for part in parts], None)
            return [part.prompt for part in parts], [part.answers for part in parts]
        source = self._column(roles.source[0], values, first)
        for name in roles.source[1:]:
            more = [as_text(value) for value in columns.get(name, blank)]
            source = [f"{one}\n{two}" if two else one for one, two in zip(source, more, strict=True)]
        if "rejected" in columns and roles.target == "chosen":
            self._column("rejected", columns["rejected"], first)
        if roles.target is None:
            return source, None
        return source, self._column(roles.target, columns.get(roles.target, blank), first)

    def _column(self, name: str, values: list[Any], first: int) -> list[str]:
        try:
            if all(map(str.strip, values)):
                texts: list[str] = values
                if "nan" not in texts and "NaN" not in texts:
                    return texts
        except TypeError:
            pass
        # In running text, an empty row separates paragraphs.
        free = self.roles is not None and self.roles.kind == "text"
        chat = [conversation(value).whole if is_chat(value) else as_text(value) for value in values]
        for row, (value, text) in enumerate(zip(values, chat, strict=True), first):
            if missing(value) or (not text.strip() and not free):
                self._lacks(name, row)
            elif not text.strip():
                self.elsewhere[name] += 1
        return chat

    def _lacks(self, name: str, row: int) -> None:
        self.missing.setdefault(name, Tally()).add(row)

    def _copies(self, first: int, source: list[str], target: list[str] | None) -> None:
        if self.beginning is None:
            # A shared prefix (`translate English to German:`) does not make rows long.
            self.beginning = len(bare(_common(source[:500]))) if len(source) >= 20 else 0
        least = self.beginning + (LINE if self.sources[0].kind == "txt" else SHORT)
        raws = list(map(bare, source))
        if target is not None:
            raws = [one + b"\0" + two for one, two in zip(raws, map(bare, target), strict=True)]
        self._remember(first, raws, least)

    def _remember(self, first: int, raws: list[bytes], least: int) -> None:
        rows = range(first, first + len(raws))
        if all(len(raw) >= least for raw in raws):
            self.long_rows.extend(rows, raws)
            return
        long, short = ([row for row in rows if (len(raws[row - first]) >= least) is kind] for kind in (True, False))
        self.long_rows.extend(long, [raws[row - first] for row in long])
        self.short_rows.extend(short, [raws[row - first] for row in short])
        known = [row for row in short if self._ids and self._ids[row - first]]
        ids = [self._ids[row - first].encode("utf-8", "surrogatepass") for row in known]
        self.short_ids.extend(known, ids)
        pairs = (one + b"\0" + raws[row - first] for one, row in zip(ids, known, strict=True))
        self.short_rows_with_id.extend(known, pairs)

    def _table(self, first: int, columns: dict[str, list[Any]]) -> None:
        roles = self._known_roles
        texts = [list(map(str, values)) for name, values in columns.items() if name != roles.group]
        raws = ["\x1f".join(cells).encode("utf-8", "surrogatepass") for cells in zip(*texts, strict=True)]
        self._remember(first, raws, 2 * SHORT)
        if roles.target is not None and roles.target in columns:
            self._count_classes([as_text(value) for value in columns[roles.target]])
        words = [list(map(as_text, values)) for name, values in columns.items() if name not in self.numbers]
        if words:
            self.writing.take(first, words)

    def _group(self, first: int, columns: dict[str, list[Any]]) -> None:
        texts = self._ids = list(map(as_text, columns.get(self._known_roles.group or "", ())))
        rows: Sequence[int] = range(first, first + len(texts))
        if not all(texts):
            rows = [row for row, text in zip(rows, texts, strict=True) if text]
            texts = [text for text in texts if text]
        if not texts:
            return
        self.groups.extend(rows, (text.encode("utf-8", "surrogatepass") for text in texts))
        numbers = [int(last.group()) for text in texts if (last := _COUNTER.search(text)) is not None]
        if numbers:
            seen, low, high = self.counters, min(numbers), max(numbers)
            seen[1], seen[2] = (min(seen[1], low), max(seen[2], high)) if seen[0] else (low, high)
            seen[0] += len(numbers)

    def _count_classes(self, labels: list[str]) -> None:
        if len(self.classes) <= MOST_CLASSES:
            self.classes.update(label for label in labels if label.strip())


def _common(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]
