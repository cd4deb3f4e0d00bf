"""What a collector puts around every line of a log: `trainer-1  | `, `INFO:root:`, `> `, or a JSON record per line.

Only what nearly all lines share is taken off, and never a word that a training program prints itself. Times stay in
front of the text. What launchers print for each rank is read by `lines`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.lines import GLOG, STAMP

LEAST_LINES = 4
LEAST_LOGGED = 2
"""Lines, if a time, a level or a place in the code stands in front of them."""
MOST = 0.9
"""The share of lines that have to be wrapped alike."""
_READ = 200
"""Lines looked at."""
_LONGEST = 160
"""Characters of a line looked at."""

_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|TRACE|SUCCESS|NOTICE)(?![\w.])"
_WHERE = r"(?:[\w./-]+\.py(?: ?: ?| line )|[\w.]+:[\w<>]+:)\d+\]?"
"""`train.py:33`, or `package.module:function:33`."""
_PIECE = lazy_regex(
    rf"(?P<stamp>{STAMP}|{GLOG})|(?P<where>{_WHERE})|(?P<level>(?i:{_LEVEL}))|"
    r"(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)|(?P<word>[A-Za-z_][\w/-]*)|(?P<number>\d[\d.]*)|(?P<space>[ \t]+)|"
    r"(?P<mark>.)"
)
_KINDS = {
    "stamp": rf"(?:{STAMP}|{GLOG})",
    "where": _WHERE,
    "level": rf"(?i:{_LEVEL})",
    "name": r"[A-Za-z_]\w*(?:\.\w+)*",
    "space": r"[ \t]+",
}
"""Pieces that differ between lines. Others stand for themselves."""
_OWN = lazy_regex(
    r"(?i)(?:.*(?:loss|acc|step|epoch|iter|batch|grad|norm|score|reward|nan|inf)|(?:ep|it|lr|train|training|valid|val|"
    r"validation|test|eval|evaluation|mean|std|mse|mae|psnr|bleu|map|iou|kl|ppl|rank|worker|total|tensor|layer|dll)s?)\d*"
)
"""Words of a training program."""
_CLOSES = frozenset("|>])}")
_LOGGED = frozenset(("stamp", "level", "where", "name"))
"""What a logger prints. A colon ends it; behind other words it names a number."""
_QUOTES = frozenset("{'\"")
"""Here a record begins."""
_STARTS_WITH_A_NUMBER = lazy_regex(r"[\s(\[]*[-+]?(?:\d|nan\b|inf\b)")
_TEXT_KEYS = ("log", "message", "msg", "text", "textPayload", "line", "event", "MESSAGE", "body")
_AROUND_TEXT = lazy_regex(
    r"(?i)@?(?:time\w*|ts|date\w*|level\w*|severity|stream|tag|logger|name|module|file\w*|func\w*|line\w*|pid|tid|"
    r"process\w*|thread\w*|host\w*|pod\w*|container\w*|kubernetes|namespace|labels|source|insertid|resource|logname|"
    r"version|app|service|path|exc_info|stack_info|partial\w*|seq\w*|_\w+)"
)


class Wrapping(Protocol):
    """Gives the text of a line as its program printed it."""

    def unwrap(self, line: str) -> str: ...


@dataclass(frozen=True)
class Beginning:
    """The same beginning in front of nearly all lines."""

    pattern: re.Pattern[str]

    def unwrap(self, line: str) -> str:
        found = self.pattern.match(line)
        if found is None:
            return line
        stamp = found["stamp"] if "stamp" in self.pattern.groupindex else None
        rest = line[found.end() :]
        return f"{stamp.rstrip()} {rest}" if stamp else rest


@dataclass(frozen=True)
class Record:
    """A JSON object per line with the text under one key."""

    key: str

    def unwrap(self, line: str) -> str:
        record = _record(line)
        text = record.get(self.key) if record is not None else None
        return text.removesuffix("\n") if isinstance(text, str) else line


def wrapping_of(lines: Sequence[str]) -> Wrapping | None:
    """Return what is around these lines, or None if they stand for themselves."""
    lines = [line for line in lines if line.strip()][:_READ]
    if len(lines) < LEAST_LOGGED:
        return None
    return _records(lines) or _beginning(lines)


def _record(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _records(lines: Sequence[str]) -> Record | None:
    if len(lines) < LEAST_LINES:
        return None
    records = [record for line in lines if (record := _record(line)) is not None]
    if len(records) < MOST * len(lines):
        return None
    for key in _TEXT_KEYS:
        texts = [record[key] for record in records if isinstance(record.get(key), str)]
        around = {name for record in records for name in record if name != key}
        if (
            len(texts) >= MOST * len(records)
            and len(set(texts)) > len(texts) // 4
            and all(_AROUND_TEXT.fullmatch(name) for name in around)
        ):
            return Record(key)
    return None


def _beginning(lines: Sequence[str]) -> Beginning | None:
    shared = _cut(_shared([_pieces(line[:_LONGEST]) for line in lines]))
    if not any(kind in {"word", "name", "where", "level"} or text == ">" for kind, text in shared):
        return None
    if len(lines) < LEAST_LINES and not any(kind in _LOGGED for kind, _ in shared):
        return None
    pattern = _compiled(shared)
    rests = [line[found.end() :] for line in lines if (found := pattern.match(line))]
    told = [rest for rest in rests if rest.strip()]
    numbers = sum(bool(_STARTS_WITH_A_NUMBER.match(rest)) for rest in told)
    if len(set(told)) <= max(1, len(rests) // 4) or numbers > len(told) // 3:
        return None
    return Beginning(pattern)


def _pieces(line: str) -> list[tuple[str, str]]:
    return [(str(found.lastgroup), found[0]) for found in _PIECE.finditer(line)]


def _shared(lines: Sequence[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """The pieces that nearly all lines begin with."""
    shared: list[tuple[str, str]] = []
    alike = list(lines)
    for place in range(max(map(len, lines))):
        kinds = Counter(_kind(line[place]) for line in alike if len(line) > place)
        if not kinds:
            break
        (kind, text), _ = kinds.most_common(1)[0]
        alike = [line for line in alike if len(line) > place and _kind(line[place]) == (kind, text)]
        own = kind == "number" or (kind == "word" and _OWN.fullmatch(text)) or (kind == "mark" and text in _QUOTES)
        if own or len(alike) < MOST * len(lines):
            break
        shared.append((kind, text))
    return shared


def _kind(piece: tuple[str, str]) -> tuple[str, str]:
    kind = piece[0]
    return (kind, "") if kind in _KINDS else piece


def _cut(shared: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Cut back to where a beginning can end: a bracket, a colon, a bar, a time, or ` - `."""
    for end in range(len(shared), 0, -1):
        kind, text = shared[end - 1]
        dash = kind == "mark" and text == "-" and end > 1 and shared[end - 2][0] == "space"
        key = text == "=" and end > 1 and shared[end - 2][1] in _TEXT_KEYS
        colon = text == ":" and any(before in _LOGGED for before, _ in shared[:end])
        if kind in {"stamp", "where"} or (kind == "mark" and text in _CLOSES) or colon or dash or key:
            spaces = int(len(shared) > end and shared[end][0] == "space")
            return shared[: end + spaces]
    return []


def _compiled(shared: Sequence[tuple[str, str]]) -> re.Pattern[str]:
    return re.compile("".join(_patterns(shared)))


def _patterns(shared: Sequence[tuple[str, str]]) -> Iterator[str]:
    named = False
    for place, (kind, text) in enumerate(shared):
        pattern = _KINDS.get(kind, re.escape(text))
        if kind == "stamp" and not named:
            named, pattern = True, f"(?P<stamp>{pattern})"
        yield "[ \\t]?" if kind == "space" and place == len(shared) - 1 else pattern
