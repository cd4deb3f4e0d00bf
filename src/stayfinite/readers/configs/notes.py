"""Free-form notes about a run: `key: value` lines, commands, brackets, calls and sentences, in any mix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting, Settings
from stayfinite.readers.configs.commands import looks_like_command, settings_of_command
from stayfinite.readers.configs.literals import parse_literal
from stayfinite.readers.configs.logged_lines import told_in_line, versions_in
from stayfinite.readers.configs.outline import Pair, pair_in, pairs_in, path_of, spoken_pairs, value_of
from stayfinite.readers.configs.tree import MOST_SETTINGS, settings_of

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

        taken = self._lines_to_balance(index)
        code = "\n".join(self.lines[index : index + taken]).strip()
        found = settings_of_code(code, self.source, first_line=index + 1)
        self.settings.extend(found or ())
        name, equals, value = code.partition("=")
        if found is not None and equals and "(" not in name and not _MAPPING.match(value):
            # A formula is also a value: `loss = torch.log(p).mean()`.
            formula = Expression(" ".join(value.split())[:300])
            self.settings.append(Setting(name.strip(" +-*/"), formula, self.source, index + 1))
        return 0 if found is None else taken

    def _lines_to_balance(self, index: int) -> int:
        """Number of lines until every bracket is closed."""
        depth = 0
        for taken, line in enumerate(self.lines[index : index + _MOST_BLOCK], 1):
            depth += sum(line.count(each) for each in "([{") - sum(line.count(each) for each in ")]}")
            if depth <= 0:
                return taken
        return 1
