"""`key: value` lines, nested by indentation: notes, and YAML without PyYAML or that it cannot parse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting
from stayfinite.readers.configs.scalars import number
from stayfinite.readers.configs.tree import MOST_DEPTH
from stayfinite.readers.configs.values import value_in_text

_MOST_NAME = 200
_WORD = r"[A-Za-z_@][\w@/.+\-]*"
_KEY = rf"{_WORD}(?:\s\w[\w@/.+\-]*){{0,4}}(?:\s?\([^()]{{1,30}}\))?"
_PAIR = lazy_regex(
    rf"""(\s*)(?:[-*•]\s+)*["'`*]{{0,2}}(?:({_KEY})["'`*]{{0,2}}\s*(?::=|:(?!//)|\s=\s)|({_WORD})["'`]?=(?!=))\s*(.*)"""
)
_SENTENCE = lazy_regex(
    r"\b(?:is|was|are|were|the|it|we|i|that|this|then|but|because|when|not|has|have|do|does|if|see)\b", re.IGNORECASE
)
"""Words that never occur in a setting's name; before a colon they mark a sentence."""
_ASSIGNMENTS = lazy_regex(
    r"""(?<![\w.=<>!])([A-Za-z_][\w.\-]*)\s?=\s?("[^"]*"|'[^']*'|\[[^\[\]]*\]|\([^()]*\)|[\w.+\-/]+)(?=[\s,;)]|$)"""
)
_NEXT = lazy_regex(r"[,;]\s+(?=[A-Za-z_][\w.-]*(?:\s[\w.-]+){0,2}\s?(?::\s|=\s?))")
_SIMPLE_PAIR = lazy_regex(r"([A-Za-z_][\w.-]*(?:\s[\w.-]+){0,2})\s?[:=]\s*([^,;()]{1,60}|\(.*\)|\[.*\])[,;]?")
_NUMBER = r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SPOKEN = lazy_regex(
    rf"\b((?:peak |base |initial |max )?(?:lr|learning[ _-]rate)|(?:micro |global |train )?batch[ _-]?size|"
    rf"weight[ _-]decay|eps(?:ilon)?|warm-?up(?: steps| ratio)?|max[ _-]grad[ _-]norm|grad(?:ient)?[ _-]?clip(?:ping)?|"
    rf"dropout|max[ _-]length|"
    rf"momentum|loss[ _-]scale|(?:lora[ _-])?(?:rank|alpha)|gradient accumulation(?: steps)?|label smoothing)"
    rf"(?:\s+(?:of|is|was|at|to|set to))?[\s:=~]+({_NUMBER})(?![\w.]*[A-Za-z%])",
    re.IGNORECASE,
)
_MEASURED = lazy_regex(
    r"lr|rate|batch|eps|warm|decay|clip|norm|dropout|epoch|step|length|len|seed|accum|momentum|beta|size|rank|alpha|"
    r"scale|"
    r"gpus?|nodes?|world|layers|dim|heads|temperature|power",
    re.IGNORECASE,
)
_LEADING_NUMBER = lazy_regex(rf"({_NUMBER})(?=[\s,;(]|$)")


@dataclass(frozen=True, slots=True)
class Pair:
    """The key and value of one line."""

    indent: int
    name: str
    text: str
    """The value as written."""


def pair_in(line: str) -> Pair | None:
    """The key and value of a line, or None."""
    match = _PAIR.fullmatch(line.rstrip())
    if match is None:
        return None
    indent, words, word, text = match.groups()
    name = re.sub(r"\s?\(.*\)$", "", words or word)
    if len(name) > _MOST_NAME or (" " in name and _SENTENCE.search(name)):
        return None
    return Pair(len(indent.expandtabs(4)), name, text.strip())


def pairs_in(line: str) -> list[Pair]:
    """All pairs of a line: `model: Qwen2-VL-7B, fp16: true, lr: 1e-4` has three."""
    first = pair_in(line)
    if first is None:
        return []
    parts = _NEXT.split(first.text)
    rest = [_SIMPLE_PAIR.fullmatch(part.strip()) for part in parts[1:]]
    found = [Pair(first.indent, match.group(1), match.group(2).strip()) for match in rest if match]
    if not found or len(found) != len(rest) or parts[0].count("(") != parts[0].count(")"):
        return [first]
    return [Pair(first.indent, first.name, parts[0].strip()), *found]


def value_of(name: str, text: str) -> Any:
    """Parse the value; for a key that names a quantity, its leading number (`lr: 1e-4 with decay`)."""
    value = value_in_text(text)
    if isinstance(value, str) and _MEASURED.search(name):
        match = _LEADING_NUMBER.match(text)
        if match:
            return number(match.group(1)) if number(match.group(1)) is not None else value
    return value


def spoken_pairs(text: str) -> Iterator[tuple[str, Any]]:
    """Settings inside a sentence: `AdamW lr 1e-3`, `trained with lr=1e-4, eps=1e-6`."""
    taken: set[str] = set()
    for pattern in (_ASSIGNMENTS, _SPOKEN):
        for match in pattern.finditer(text[:2000]):
            name = match.group(1)
            value = value_in_text(match.group(2))
            if name.lower() not in taken and not (pattern is _ASSIGNMENTS and _is_code(value, match.group(2))):
                taken.add(name.lower())
                yield name, value


def _is_code(value: Any, text: str) -> bool:
    """`y = x` in a formula is code; `dtype=bf16`, `name="x"` and numbers are settings."""
    return isinstance(value, str) and text[:1] not in "\"'" and len(text) < 3


def read_outline(text: str, source: str, *, kind: str = "file") -> list[Setting]:
    """Every `key: value` line of the text, prefixed with the headings above it."""
    settings: list[Setting] = []
    above: list[tuple[int, str]] = []
    for line_number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pair = pair_in(line[:5000])
        if pair is None:
            continue
        name = path_of(pair, above)
        if pair.text and not pair.text.startswith("#"):
            settings.append(Setting(name, value_of(pair.name, pair.text), source, line_number, kind))
    return settings


def path_of(pair: Pair, above: list[tuple[int, str]]) -> str:
    """The pair's full name under the open headings; a pair without a value opens one."""
    while above and above[-1][0] >= pair.indent:
        above.pop()
    name = ".".join([*(each for _, each in above), pair.name])
    if (not pair.text or pair.text.startswith("#")) and len(above) < MOST_DEPTH:
        above.append((pair.indent, pair.name))
    return name
