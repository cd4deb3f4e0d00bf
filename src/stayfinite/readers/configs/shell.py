"""Shell scripts: their commands, variables, and the files they write."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.commands import looks_like_command, settings_of_command, unquoted, with_variables
from stayfinite.readers.configs.kinds import Reader, kind_of
from stayfinite.readers.configs.scalars import scalar
from stayfinite.readers.configs.tree import MOST_SETTINGS

MOST_LINES = 20_000
MOST_WIDTH = 20_000
_ASSIGNMENT = lazy_regex(
    r"\s*(?:export\s+|declare\s+(?:-\w+\s+)*|local\s+|readonly\s+)?([A-Za-z_]\w*)\+?=(.*)", re.DOTALL
)
_HEREDOC = lazy_regex(r"<<-?\s*[\"']?(\w+)[\"']?")
_DIRECTIVE = lazy_regex(r"#(?:SBATCH|PBS|BSUB|\$)\s+(-.*)")
_COMMENT = lazy_regex(r"(?:^|\s)#")
_ECHOED = lazy_regex(r"\s*(?:echo\b|printf\b|#)")
_OPTIONS = lazy_regex(r"(?:^|\s)(?:--?[A-Za-z]|(?:\+\+|\+|~)?[A-Za-z_]\w*(?:\.\w+)+=)")
"""A flag, or an override such as `actor.optim.lr=1e-6`: a variable that holds some is part of a command."""
_MODULE = lazy_regex(r"\s*[A-Za-z_]\w*(?:\.\w+)+\s+(?:\\\s*)?--?[A-Za-z]")


def read_shell(text: str, source: str, read: Reader) -> Settings:
    """Every command with options, and every variable; ``read`` reads the files that the script writes."""
    reader = _Script(source, read)
    lines = [line[:MOST_WIDTH] for line in text.split("\n")[:MOST_LINES]]
    index = 0
    while index < len(lines) and len(reader.settings) < MOST_SETTINGS:
        index += max(1, reader.take(lines, index))
    return Settings(reader.settings[:MOST_SETTINGS], reader.notes)


class _Script:
    def __init__(self, source: str, read: Reader) -> None:
        self.source = source
        self._read = read
        self.settings: list[Setting] = []
        self.notes: list[tuple[str, str]] = []
        self._variables: dict[str, str] = {}

    def take(self, lines: list[str], index: int) -> int:
        """Read the statement that starts at a line; return the number of lines consumed."""
        line = lines[index]
        directive = _DIRECTIVE.match(line)
        if directive:
            self.settings.extend(settings_of_command(directive.group(1), self.source, index + 1))
            return 1
        if not line.strip() or _ECHOED.match(line):
            return 1
        statement, taken = _statement(lines, index)
        heredoc = _HEREDOC.search(statement)
        if heredoc:
            return taken + self._heredoc(lines, index + taken, heredoc.group(1))
        assignment = _ASSIGNMENT.fullmatch(statement)
        if assignment and not _is_prefix(assignment.group(2)):
            self._assign(assignment.group(1), assignment.group(2).strip(), index + 1)
        elif " -" in statement or looks_like_command(statement) or "=" in statement:
            self._command(statement, index + 1)
        return taken

    def _assign(self, name: str, text: str, line: int) -> None:
        if text.startswith("("):
            text = text[1:].rpartition(")")[0].strip(" \t")
        plain = unquoted(text).rstrip() if text[:1] in "\"'" else text
        plain = with_variables(plain, self._variables)
        self._variables[name] = plain[:20_000]
        if _OPTIONS.search(plain):
            self._command(plain, line)
        elif plain and "$(" not in plain and "`" not in plain:
            self.settings.append(Setting(name, scalar(plain), self.source, line, "command"))

    def _command(self, text: str, line: int) -> None:
        found = settings_of_command(text, self.source, line, variables=self._variables)
        if found:
            self.settings.extend(found)
            self.notes.append((f"{self.source}:{line}", " ".join(text.split())[:4000]))

    def _heredoc(self, lines: list[str], start: int, mark: str) -> int:
        """`cat > ds_config.json <<EOF`: the text up to the mark is a separate file, or a module with its options."""
        end = next((index for index in range(start, len(lines)) if lines[index].strip() == mark), len(lines))
        text = "\n".join(lines[start:end])
        if _MODULE.match(text):  # read -r -d '' command <<EOF, and later: deepspeed --module $command
            self._command("-m " + text.replace("\\\n", "\n"), start + 1)
            return end - start + 1
        kind = kind_of("", text[:4096].encode())
        if kind in {"json", "yaml", "script", "notes"}:
            found = self._read(kind, text, self.source)
            self.settings.extend(
                Setting(each.name, each.value, self.source, each.line + start if each.line else start, each.kind)
                for each in found
            )
        return end - start + 1


def _statement(lines: list[str], index: int) -> tuple[str, int]:
    """A statement with its continuation lines, including open quotes and arrays."""
    text = lines[index]
    taken = 1
    while index + taken < len(lines) and taken < 500 and len(text) < MOST_WIDTH:
        stripped = _without_comment(text).rstrip(" \t\r")
        if stripped.endswith("\\"):
            text = stripped[:-1] + "\n" + lines[index + taken].strip()
        elif _is_open(stripped):
            text = stripped + "\n" + _inside(stripped, lines[index + taken])
        else:
            break
        taken += 1
    return _without_comment(text), taken


def _without_comment(text: str) -> str:
    """Strip a trailing comment. One before the last quote is not recognized, so the text is scanned once."""
    found = _COMMENT.search(text, max(0, *(text.rfind(mark) for mark in "\n\"'")))
    return text if found is None else text[: found.start()]


def _inside(text: str, line: str) -> str:
    """A further line of an open array or string; arrays may contain comment lines."""
    found = _ASSIGNMENT.fullmatch(text)
    array = found is not None and found.group(2).lstrip().startswith("(")
    return "" if array and line.lstrip().startswith("#") else _without_comment(line)


def _is_open(text: str) -> bool:
    match = _ASSIGNMENT.fullmatch(text)
    if match is None:
        return False
    value = match.group(2).lstrip()
    if value.startswith("("):
        return value.count("(") > value.count(")")
    quote = value[:1]
    return quote in {'"', "'"} and value.count(quote) - value.count("\\" + quote) == 1


def _is_prefix(value: str) -> bool:
    """`CUDA_VISIBLE_DEVICES=0 python train.py`: a variable for one command."""
    word = re.match(r"(?:\"[^\"]*\"|'[^']*'|\S*)\s+(.*)", value, re.DOTALL)
    return value[:1] not in "(\"'" and word is not None and looks_like_command(word.group(1))
