"""Assign columns to roles: source, target, label, id; guessed from names and first rows if not given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from stayfinite.errors import UsageError
from stayfinite.inspection.data import column_names as names
from stayfinite.inspection.data.values import as_number, as_text, missing
from stayfinite.readers.data.shapes import is_chat, shape_of

Kind = Literal["pairs", "prompts", "chat", "classes", "text", "table", "tokens"]
Columns = Mapping[str, Sequence[Any]]
PROSE = 60  # mean characters above which a column next to numeric ones is the main text


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The roles of the columns."""

    kind: Kind
    """Pairs have a limit per side; prompts and chats are one text, of which the answer is learned."""
    source: tuple[str, ...] = ()
    """The first must not be empty; the others are appended to it."""
    target: str | None = None
    group: str | None = None
    group_given: bool = False
    numbers: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    """Columns of token ids."""
    given: bool = False
    """The user named source or target."""

    def told(self) -> str:
        """Describe the roles for the banner."""
        parts = {
            "text": " + ".join(self.source) if self.target is None else "",
            "source": " + ".join(self.source) if self.target is not None else "",
            "target" if self.kind != "classes" else "label": self.target or "",
            "token ids": ", ".join(self.tokens),
            "numbers": listed(self.numbers) if self.kind == "table" else "",
            "id": self.group or "",
        }
        return ", ".join(f"{role} = {text}" for role, text in parts.items() if text)


def listed(columns: Sequence[str], most: int = 6) -> str:
    """The first columns, and how many more there are."""
    more = f" and {len(columns) - most} more" if len(columns) > most else ""
    return ", ".join(columns[:most]) + more


def roles_of(columns: Columns, *, source: str | None, target: str | None, group: str | None) -> Roles:
    """Assign roles from names and first rows; columns named by the user are not questioned."""
    for name in (source, target, group):
        _known(name, columns)
    roles = _guess(columns, source, target)
    if source is not None or target is not None:
        roles = replace(roles, given=True)
    if group is not None:
        return replace(roles, group=group, group_given=True)
    taken = {*roles.source, roles.target, *roles.tokens}
    return replace(roles, group=_group([name for name in columns if name not in taken]))


def _known(name: str | None, columns: Columns) -> None:
    if name is None or name in columns:
        return
    near = get_close_matches(name, list(columns), n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    have = listed(tuple(columns), 20) or "none"
    raise UsageError(f"no column {name!r}{meant}", fix=f"choose one of: {have}")


def _guess(columns: Columns, source: str | None, target: str | None) -> Roles:
    named = {names.plain(name): name for name in reversed(list(columns))}
    numbers = tuple(name for name, values in columns.items() if _numeric(values))
    ids = tuple(named[name] for name in names.TOKEN_IDS if name in named and _ids(columns[named[name]]))
    if source is None and target is None:
        shape = shape_of(columns)
        if shape is not None and shape.chat:
            return Roles(kind="chat", source=shape.source)
        if any("label" not in name for name in ids):
            return Roles(kind="tokens", tokens=ids)
        if shape is not None and shape.target is not None and not {*shape.source} & {*numbers}:
            prompts = shape.name == "list of pairs" and shape.target in numbers
            kind: Kind = "prompts" if prompts else _kind(columns, shape.source[0], shape.target, numbers)
            return Roles(kind=kind, source=shape.source, target=shape.target, numbers=() if prompts else numbers)
    numeric = {*numbers}
    words = [name for name, values in columns.items() if name not in numeric and _wordy(values)]
    source = source or _first(named, names.SOURCES, words)
    if target is None:
        target = _first(named, names.TARGETS, [name for name in words if name != source])
    if source is None:
        source = _first(named, names.TEXTS, [name for name in words if name != target])
    features = [name for name in numbers if not names.NO_FEATURE.match(names.plain(name))]
    if source is None and target is None and (longest := _longest(columns, words, PROSE * (len(features) > 2))):
        labeled = any(name in named and named[name] not in longest for name in names.LABELS)
        source, target = longest[0], longest[1] if len(longest) > 1 and not labeled else None
    if target is None and source is not None:
        target = _label(columns, named, source)
    if source is None and target is not None and target not in numbers:
        rest = [name for name in words if name != target]
        source = rest[0] if rest else None
    if source is None or source in numbers:
        return Roles(kind="table", target=target or _label(columns, named, ""), numbers=numbers)
    beside = names.SECOND_SOURCES.get(names.plain(source), ())
    seconds = tuple(named[name] for name in beside if name in named and named[name] not in (target, source))
    return Roles(
        kind=_kind(columns, source, target, numbers), source=(source, *seconds), target=target, numbers=numbers
    )


def _kind(columns: Columns, source: str, target: str | None, numbers: Sequence[str]) -> Kind:
    if target is None:
        return "text"
    if {names.plain(source), names.plain(target)} & names.PROMPTS and target not in numbers:
        return "prompts"
    return "classes" if _classes(columns[target]) or target in numbers else "pairs"


def _first(named: Mapping[str, str], wanted: Sequence[str], among: Sequence[str]) -> str | None:
    return next((named[name] for name in wanted if named.get(name) in among), None)


def _longest(columns: Columns, words: Sequence[str], least: int) -> list[str]:
    """The two columns with the most text, in file order; [] if the longest is shorter than ``least``."""
    sizes = {name: sum(len(as_text(value)) for value in columns[name]) / max(1, len(columns[name])) for name in words}
    kept = [name for name in words if sizes[name] >= 4 and _varied(columns[name]) and not names.GROUPS.match(name)]
    if max(sizes.values(), default=0) < least:
        return []
    chosen = sorted(kept, key=lambda name: -sizes[name])[:2]
    return sorted(chosen, key=list(columns).index) or [name for name in words if sizes[name] >= 4][:1]


def _label(columns: Columns, named: Mapping[str, str], source: str) -> str | None:
    for name in names.LABELS:
        column = named.get(name)
        if column is not None and column != source and (_numeric(columns[column]) or _classes(columns[column])):
            return column
    return None


def _group(free: Sequence[str]) -> str | None:
    named = {names.plain(name): name for name in free}
    for name in names.IDS:
        if name in named:
            return named[name]
    return next((column for name, column in named.items() if names.GROUPS.match(name)), None)


def _numeric(values: Sequence[Any]) -> bool:
    seen = [value for value in values if not (value is None or value == "")]
    numbers = sum(as_number(value) is not None for value in seen)
    return bool(seen) and not isinstance(seen[0], list) and numbers >= 0.95 * len(seen)


def _wordy(values: Sequence[Any]) -> bool:
    return any(
        isinstance(value, str)
        or (isinstance(value, list) and value and (is_chat(value) or all(isinstance(each, str) for each in value)))
        for value in values
        if not missing(value)
    )


def _ids(values: Sequence[Any]) -> bool:
    return any(isinstance(value, list) and value and isinstance(value[0], int) for value in values)


def _varied(values: Sequence[Any]) -> bool:
    texts = [as_text(value) for value in values]
    return len(texts) < 8 or len(set(texts)) > 0.2 * len(texts)


def _classes(values: Sequence[Any]) -> bool:
    """Whether a few short values repeat."""
    texts = [as_text(value).strip() for value in values if not missing(value)]
    distinct = set(texts) - {""}
    if not distinct or any(isinstance(value, list) for value in values[:8]):
        return False
    short = sum(map(len, distinct)) / len(distinct) <= 40
    return short and len(distinct) <= max(2, min(200, len(texts) // 5))
