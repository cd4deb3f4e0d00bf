"""Free-form notes about a run: `key: value` lines, commands, brackets, calls and sentences, in any mix.

Pairs may be nested by indentation, also in YAML without PyYAML or that it cannot parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.numerals import plain_numbers
from stayfinite.core.settings import Expression, Setting, Settings
from stayfinite.readers.configs.commands import looks_like_command, settings_of_command
from stayfinite.readers.configs.literals import parse_literal, value_in_text
from stayfinite.readers.configs.logged_lines import told_in_line, versions_in
from stayfinite.readers.configs.scalars import number
from stayfinite.readers.configs.tree import MOST_DEPTH, MOST_SETTINGS, settings_of

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
    r"scale|gpus?|nodes?|world|layers|dim|heads|temperature|power",
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
    if _MEASURED.search(name):
        text = plain_numbers(text)
    value = value_in_text(text)
    if isinstance(value, str) and _MEASURED.search(name):
        match = _LEADING_NUMBER.match(text)
        if match:
            return number(match.group(1)) if number(match.group(1)) is not None else value
    return value


def spoken_pairs(text: str) -> Iterator[tuple[str, Any]]:
    """Settings inside a sentence: `AdamW lr 1e-3`, `trained with lr=1e-4, eps=1e-6`."""
    taken: set[str] = set()
    text = plain_numbers(text[:2000])
    for pattern in (_ASSIGNMENTS, _SPOKEN):
        for match in pattern.finditer(text):
            name = match.group(1)
            value = value_in_text(match.group(2))
            if name.lower() not in taken and not (pattern is _ASSIGNMENTS and _is_code(value, match.group(2))):
                taken.add(name.lower())
                yield name, value


def _is_code(value: Any, text: str) -> bool:
    """`y = x` in a formula is code; `dtype=bf16`, `name="x"` and numbers are settings."""
    return isinstance(value, str) and text[:1] not in "\"'" and len(text) < 3


def read_outline(text: str, source: str) -> list[Setting]:
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
            settings.append(Setting(name, value_of(pair.name, pair.text), source, line_number))
    return settings


def path_of(pair: Pair, above: list[tuple[int, str]]) -> str:
    """The pair's full name under the open headings; a pair without a value opens one."""
    while above and above[-1][0] >= pair.indent:
        above.pop()
    name = ".".join([*(each for _, each in above), pair.name])
    if (not pair.text or pair.text.startswith("#")) and len(above) < MOST_DEPTH:
        above.append((pair.indent, pair.name))
    return name


MOST_LINES = 20_000
MOST_WIDTH = 4_000
_MOST_BLOCK = 200

_CALL = lazy_regex(r"\s*(?:[\w., ]{1,60}=\s*)?[A-Za-z_][\w.]*\(")
_CALLED = lazy_regex(r"(?:not )?[A-Za-z_][\w.]*\(.*\)")
_COMMAND_NAMES = frozenset({"command", "cmd", "run", "launch", "launcher"})
_NOTHING = frozenset({"", "{", "[", "(", "}", "]", ")"})
_MAPPING = lazy_regex(r"\s*(?:dict|ConfigDict|EasyDict|Namespace)\(")
_INNER = lazy_regex(r"([A-Za-z_][\w.]*): (\S+)")
_OPTIONS = lazy_regex(r"(?:^|\s)(--[A-Za-z][\w.\-]*(?:[=\s].*)?)$")
_STARTS_BRACKET = lazy_regex(
    r"\s*(?:[\w.\-\" ]{1,60}[:=]\s*)?(?:(\{)\s*(?:$|[\"'{]|\w+\s*[:=])|((?:Simple)?Namespace\()\w+=)"
)


def read_notes(text: str, source: str) -> Settings:
    """The settings of a text without a format, with every line as a note."""
    reader = _Reader(text, source)
    reader.read()
    return Settings(reader.settings[:MOST_SETTINGS], notes_of(text, source))


def notes_of(text: str, source: str) -> list[tuple[str, str]]:
    """Every non-empty line with its location."""
    return [
        (f"{source}:{number}", line.strip()[:MOST_WIDTH])
        for number, line in enumerate(text.split("\n")[:MOST_LINES], 1)
        if line.strip() and not line.lstrip().startswith("```")
    ]


class _Reader:
    """Walks over the lines, reading each recognized block as a whole."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.lines = [line[:MOST_WIDTH] for line in text.split("\n")[:MOST_LINES]]
        self.settings: list[Setting] = []
        self._above: list[tuple[int, str]] = []

    def read(self) -> None:
        index = 0
        while index < len(self.lines) and len(self.settings) < MOST_SETTINGS:
            index += max(1, self._take(index))

    def _take(self, index: int) -> int:
        """Read what starts at a line; return the number of lines consumed."""
        line = self.lines[index]
        if not line.strip() or line.lstrip().startswith(("```", "#", "//")):
            return 1
        for reader in (self._command, self._bracket, self._call):
            taken = reader(index)
            if taken:
                return taken
        self._line(line, index + 1)
        return 1

    def _line(self, line: str, number: int) -> None:
        pairs = pairs_in(line)
        if not pairs:
            self._add_spoken("", line, number)
            self._add_options(line, number)
            self._add({**dict(versions_in(line)), **dict(told_in_line(line))}.items(), number)
            return
        several = dict(spoken_pairs(line)) if line.count("=") > 1 and len(pairs) == 1 else {}
        if len(several) > 1 and not _CALLED.fullmatch(pairs[0].text):
            self._add(several.items(), number)
            return
        for pair in pairs:
            name = path_of(pair, self._above)
            if pair.text not in _NOTHING:
                self._pair(name, pair, number)

    def _pair(self, name: str, pair: Pair, number: int) -> None:
        value = value_of(pair.name, pair.text)
        if isinstance(value, str) and _CALLED.fullmatch(value):
            value = Expression(value)
        self.settings.append(Setting(name, value, self.source, number))
        if not isinstance(value, str):
            return
        inner = _INNER.fullmatch(pair.text)
        if inner:  # `ctc_conf: ignore_nan_grad: true`
            self._add([(f"{name}.{inner.group(1)}", value_of(inner.group(1), inner.group(2)))], number)
            return
        if looks_like_command(pair.text):
            self.settings.extend(settings_of_command(pair.text, self.source, number))
        elif _CALLED.fullmatch(pair.text):
            from stayfinite.readers.configs.scripts import settings_of_code

            self.settings.extend(settings_of_code(pair.text, self.source, first_line=number) or ())
        elif not self._add_options(pair.text, number):
            self._add_spoken(f"{name}.", pair.text, number)
            self._add(versions_in(pair.text), number)

    def _add(self, found: Iterable[tuple[str, Any]], number: int) -> None:
        self.settings.extend(Setting(name, value, self.source, number) for name, value in found)

    def _add_spoken(self, prefix: str, text: str, number: int) -> None:
        self._add(((f"{prefix}{name}", value) for name, value in spoken_pairs(text)), number)

    def _add_options(self, text: str, number: int) -> bool:
        match = _OPTIONS.search(text)
        if match:
            self.settings.extend(settings_of_command(match.group(1), self.source, number))
        return match is not None

    def _command(self, index: int) -> int:
        line = self.lines[index]
        pair = pair_in(line)
        named = pair if pair is not None and pair.name.lower() in _COMMAND_NAMES else None
        text = named.text if named else line
        if not (looks_like_command(text) or text.lstrip().startswith("--")):
            return 0
        taken = 1
        while text.rstrip().endswith("\\") and index + taken < len(self.lines):
            text = text.rstrip()[:-1] + "\n" + self.lines[index + taken].strip()
            taken += 1
        if named:
            self.settings.append(Setting(named.name, " ".join(text.split()), self.source, index + 1))
        self.settings.extend(settings_of_command(text, self.source, index + 1))
        return taken

    def _bracket(self, index: int) -> int:
        match = _STARTS_BRACKET.match(self.lines[index])
        if match is None:
            return 0
        rest = "\n".join(self.lines[index : index + 2000])
        start = match.start(match.lastindex or 0)
        parsed = parse_literal(rest, start, first_line=index + 1)
        if parsed is None:
            return 0
        head = self.lines[index][:start].strip(" \t:=\"'") if match[1] else ""
        self.settings.extend(settings_of(parsed.node, self.source, prefix=head))
        # An unclosed bracket may be a truncated config or a typo, so its lines are also read one by one.
        return rest.count("\n", 0, parsed.end) + 1 if parsed.whole else 1

    def _call(self, index: int) -> int:
        if not _CALL.match(self.lines[index]):
            return 0
        from stayfinite.readers.configs.scripts import settings_of_code

        last = last_of_block(self.lines[index : index + _MOST_BLOCK])
        code = "\n".join(self.lines[index : index + last + 1]).strip()
        found = settings_of_code(code, self.source, first_line=index + 1)
        self.settings.extend(found or ())
        name, equals, value = code.partition("=")
        if found is not None and equals and "(" not in name and not _MAPPING.match(value):
            # A formula is also a value: `loss = torch.log(p).mean()`.
            formula = Expression(" ".join(value.split())[:300])
            self.settings.append(Setting(name.strip(" +-*/"), formula, self.source, index + 1))
        return 0 if found is None else last + 1


def last_of_block(lines: list[str]) -> int:
    """The line in which the brackets opened so far are closed, by counting; 0 if none is."""
    depth = 0
    for index, line in enumerate(lines):
        depth += sum(line.count(each) for each in "([{") - sum(line.count(each) for each in ")]}")
        if depth <= 0:
            return index
    return 0
