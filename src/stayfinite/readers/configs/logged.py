"""Settings in a log: command lines, dumps of arguments and configs, tables, announcements."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.commands import looks_like_command, settings_of_command
from stayfinite.readers.configs.literals import parse_literal
from stayfinite.readers.configs.logged_lines import cleaned, told_in_line
from stayfinite.readers.configs.notes import Pair, last_of_block, pair_in, path_of, spoken_pairs, value_of
from stayfinite.readers.configs.tree import MOST_SETTINGS, settings_of
from stayfinite.readers.configs.vocabulary import is_measured, is_measurement, is_measuring, is_told, without_secrets

MOST_LINES = 50_000
_MOST_BLOCK = 2_000
_MOST_WIDTH = 200_000  # fairseq prints its whole configuration on one line

_NAMED_DUMP = lazy_regex(
    r"\b(\w{0,60}(?:Namespace|Arguments|Args|Config|Params|Options|Settings|HParams)|AttrDict|DictConfig|DotMap|Munch)"
    r"\s?([({])"
)
_DUMP = lazy_regex(r"(?:^|[=:>]\s*|\bconfig\w*\s+|\bparameters\s+|\bargs\s+|\boverrides:?\s+|\|\s)([{\[])")
_PYTHON = lazy_regex(r"\s*([A-Za-z_]\w*) = (?:dict\(|\[|\{|[\"'\d]|None|True|False)")
_LISTED = lazy_regex(r"['\"]--[A-Za-z]")
_LAUNCH = lazy_regex(
    r"(?:^|\b(?:cmd|command|running|executing|launch\w*)\b\s*[:=]?\s+['\"]?)"
    r"((?:\S*/)?(?:python|torchrun|accelerate|deepspeed)\S*\s.*)",
    re.IGNORECASE,
)
_LONGEST_COMMAND = 20_000
_ASSIGNED = lazy_regex(r"\s*([A-Za-z_][\w.]*)=(\S.*?),?\s*")
_MANY = 5
_CODE = lazy_regex(
    r"\s*(?:[A-Za-z_][\w.\[\]]{0,60}\s*(?:,\s*[\w.]{1,40}\s*){0,4}[-+*/]?=(?!=)\s*\S|"
    r"(?:for|while|if|elif|else|with|def|class|try|except)\b.{0,200}:\s*(?:#.*)?$|return\b|import [a-z]|"
    r"from \S+ import |[A-Za-z_][\w.]{0,60}\(.{0,300}\)\s*(?:#.*)?$)"
)
_COMMENT = lazy_regex(r"\s*#")
_PROGRAM = 3
"""Lines of code in a row that are a program."""


def settings_in_text(lines: Iterable[tuple[str, str]]) -> Settings:
    """Read settings from log lines given as ``(where, text)``; the lines they came from become notes."""
    reader = _Reader(lines)
    reader.read()
    return without_secrets(Settings(reader.settings[:MOST_SETTINGS], reader.notes))


def split_where(where: str) -> tuple[str, int]:
    """`train.log:17` -> `train.log`, 17."""
    source, colon, line = where.rpartition(":")
    return (source, int(line)) if colon and line.isascii() and line.isdigit() and len(line) < 12 else (where, 0)


class _Reader:
    """Walks over the lines, joining multi-line dumps."""

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self.settings: list[Setting] = []
        self.notes: list[tuple[str, str]] = []
        self._wheres: list[str] = []
        self._texts: list[str] = []
        self._seen: set[tuple[str, str]] = set()
        self._plain_until = 0
        """Up to here, pairs are known to hold no setting."""
        for count, (where, text) in enumerate(lines):
            if count >= MOST_LINES:
                break
            self._wheres.append(where)
            self._texts.append(cleaned(text[:_MOST_WIDTH]))

    def read(self) -> None:
        index = 0
        while index < len(self._texts) and len(self.settings) < MOST_SETTINGS:
            text = self._texts[index]
            if not text or is_measuring(text) or text.startswith('  File "'):
                index += 1
                continue
            index += max(1, self._take(index, text))
        self._code()

    def _code(self) -> None:
        """Note the lines of a program that was pasted: three and more in a row. A traceback has one at a time."""
        noted = {where for where, _ in self.notes}
        block: list[int] = []
        for index, text in enumerate([*self._texts, ""]):
            if _CODE.match(text) and not is_measuring(text):
                block.append(index)
                continue
            if _COMMENT.match(text):
                continue  # between lines of code, it ends no program
            for each in block if len(block) >= _PROGRAM else ():
                if self._wheres[each] not in noted:
                    self._note(each)
            block = []

    def _take(self, index: int, text: str) -> int:
        for reader in (self._command, self._dump, self._python, self._announced, self._outline):
            taken = reader(index, text)
            if taken:
                return taken
        return 1

    def _announced(self, index: int, text: str) -> int:
        found = list(told_in_line(text))
        for name, value in found:
            self._add(name, value, index)
        if found:
            self._note(index)
        return len(found[:1])

    def _command(self, index: int, text: str) -> int:
        if "-" not in text and ".py" not in text and "=" not in text:
            return 0
        text = text[:_LONGEST_COMMAND]
        listed = _LISTED.search(text)
        bracket = text.rfind("[", 0, listed.start()) if listed else -1
        if bracket >= 0:  # subprocess: Command '['python', 'train.py', '--fp16']' returned non-zero exit status 1
            parsed = parse_literal(text, bracket)
            if parsed is not None and isinstance(parsed.node.value, list):
                words = " ".join(each.value for each in parsed.node.value if isinstance(each.value, str))
                return self._commanded(index, words, 1)
        launched = _LAUNCH.search(text)
        command = launched.group(1) if launched else text
        if not looks_like_command(command):
            return 0
        taken = 1
        while command.rstrip().endswith("\\") and index + taken < len(self._texts) and taken < 300:
            command = command.rstrip()[:-1] + "\n" + self._texts[index + taken].strip()
            taken += 1
        return self._commanded(index, command, taken)

    def _commanded(self, index: int, command: str, taken: int) -> int:
        source, line = split_where(self._wheres[index])
        for setting in settings_of_command(command, source, line, kind="log"):
            self.settings.append(setting)
        self._note(index, " ".join(command.split()))
        return taken

    def _dump(self, index: int, text: str) -> int:
        if not ("{" in text or "(" in text or "[" in text):
            return 0
        named = _NAMED_DUMP.search(text)
        match = named or _DUMP.search(text)
        if match is None:
            return 0
        start = match.start(1) if named and named.group(2) == "(" else match.start(2 if named else 1)
        last = self._end_of_block(index, start)
        block = "\n".join([text[start:], *self._texts[index + 1 : last + 1]])
        parsed = parse_literal(block, 0)
        if parsed is None or isinstance(parsed.node.value, list) or is_measurement(parsed.node):
            return 0
        prefix = named.group(1) if named else _heading(text[:start])
        for setting in settings_of(parsed.node, "", prefix=prefix):
            position = min(index + max(setting.line - 1, 0), last)
            self._add(setting.name, setting.value, position)
        self._note(index, " ".join(block.split())[:4000])
        return block.count("\n", 0, parsed.end) + 1 if parsed.whole else last - index + 1

    def _end_of_block(self, index: int, start: int) -> int:
        """The line where the brackets opened here are closed."""
        return index + last_of_block([self._texts[index][start:], *self._texts[index + 1 : index + _MOST_BLOCK]])

    def _python(self, index: int, text: str) -> int:
        """mmengine writes its config as Python: `optimizer = dict(type='SGD', lr=0.01)`."""
        if not _PYTHON.match(text) or is_measured(text.partition("=")[0].strip(), text.partition("=")[2].strip()):
            return 0
        from stayfinite.readers.configs.scripts import settings_of_code

        last = self._end_of_block(index, 0)
        code = "\n".join(self._texts[index : last + 1])
        if "dict(" not in code and not is_told(text.partition("=")[0].strip()):
            return 0
        found = settings_of_code(code.strip(), "")
        for setting in found or ():
            self._add(setting.name, setting.value, min(index + max(setting.line - 1, 0), last))
        if found:
            self._note(index, " ".join(code.split())[:4000])
        return last - index + 1 if found else 0

    def _outline(self, index: int, text: str) -> int:
        """YAML dumps, `fp16=True,` lines, and single `key: value` lines with a known setting."""
        if index < self._plain_until:
            return self._single(index, text, _pair(text))
        run: list[Pair] = []
        for position in range(index, min(index + _MOST_BLOCK, len(self._texts))):
            text_here = self._texts[position]
            pair = _pair(text_here)
            if pair is None or (run and not _continues(pair)) or is_measured(pair.name, pair.text):
                break
            run.append(pair)
        told = [pair for pair in run if is_told(pair.name)]
        if not told:
            self._plain_until = index + len(run)  # as plain from each of these lines on
        if len(run) < 4 or not told:
            return self._single(index, text, run[0] if run else None)
        above: list[tuple[int, str]] = []
        for offset, pair in enumerate(run):
            name = path_of(pair, above)
            if pair.text:
                self._add(name, value_of(pair.name, pair.text), index + offset)
                self._note(index + offset)
        return len(run)

    def _single(self, index: int, text: str, pair: Pair | None) -> int:
        if pair is not None and pair.text and is_told(pair.name) and _continues(pair):
            self._add(pair.name, value_of(pair.name, pair.text), index)
            self._note(index)
        elif text.count("=") >= _MANY:
            found = dict(spoken_pairs(text))
            if len(found) >= _MANY and not any(is_measured(name, str(value)) for name, value in found.items()):
                for name, value in found.items():
                    self._add(name, value, index)
                self._note(index)
        return 0

    def _add(self, name: str, value: Any, index: int) -> None:
        if isinstance(value, dict) and value:
            for key, each in list(value.items())[:MOST_SETTINGS]:
                self._add(f"{name}.{key}", each, index)
            return
        mark = (name, repr(value))
        if mark not in self._seen:  # every rank prints the same dump
            self._seen.add(mark)
            source, line = split_where(self._wheres[index])
            self.settings.append(Setting(name, value, source, line, "log"))

    def _note(self, index: int, text: str = "") -> None:
        note = (self._wheres[index], (text or self._texts[index]).strip()[:4000])
        if not self.notes or self.notes[-1] != note:
            self.notes.append(note)


def _pair(text: str) -> Pair | None:
    if not text or len(text) > 2000 or not (":" in text or "=" in text):
        return None
    assigned = _ASSIGNED.fullmatch(text)
    if assigned:
        return Pair(0, assigned.group(1), assigned.group(2))
    return pair_in(text)


def _continues(pair: Pair) -> bool:
    """Whether a pair can be another line of a YAML dump, not a message with a colon."""
    return "/" not in pair.name and len(pair.text) < 300 and pair.text.count("=") < 3 and "Error" not in pair.name


def _heading(text: str) -> str:
    """The name of a dump: `json` of DeepSpeed's `json = {`, "" for a sentence."""
    word = re.search(r"([A-Za-z_][\w.]*)['\"]?\s*[=:]?\s*$", text)
    name = word.group(1) if word else ""
    return (
        ""
        if name.lower() in {"config", "configuration", "args", "arguments", "parameters", "json", "info", "hparams"}
        else name
    )
