"""Jupyter notebooks: code cells as one script, shell lines as commands. Outputs are no settings."""

from __future__ import annotations

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.commands import settings_of_command
from stayfinite.readers.configs.files import Reader, kind_of
from stayfinite.readers.configs.literals import parse_json
from stayfinite.readers.configs.program.state import ANY_CARD, Surroundings
from stayfinite.readers.configs.scripts import read_script
from stayfinite.readers.configs.tree import Node

_COMMAND = lazy_regex(r"\s*(?:!|%run\s|%sx\s|%system\s)\s*(.+)")
_ENVIRONMENT = lazy_regex(r"\s*%(?:set_)?env\s+(\w+)\s*[= ]\s*(\S+)")
_SHELL_CELL = lazy_regex(r"\s*%%(?:bash|sh|shell|script)\b")
_WRITTEN_FILE = lazy_regex(r"\s*%%(?:writefile|file)\s+(?:-a\s+)?(\S+)")
_OTHER_CELL = lazy_regex(r"\s*%%(?:html|javascript|js|latex|markdown|svg|sql|R|perl|ruby)\b")


def read_notebook(text: str, source: str, read: Reader, surroundings: Surroundings = ANY_CARD) -> Settings:
    """Read a notebook's settings, with lines of its file; ``read`` reads cells that are files of other kinds."""
    others = _OtherCells(source, read)
    code, whole = _code_of(text, others)
    script = read_script(
        "\n".join(line for line, _ in code),
        source,
        kind="notebook",
        file_lines=[number for _, number in code],
        more=others.settings,
        surroundings=surroundings,
    )
    notes = [] if whole else [(source, "incomplete: read up to the error")]
    return Settings(script, [*notes, *script.notes, *others.notes], script.code_faults)


def script_of(text: str) -> list[tuple[str, int]]:
    """The code of a notebook as lines of one script, each with its line in the file."""
    return _code_of(text, _OtherCells("", lambda *_: Settings([])))[0]


def _code_of(text: str, others: _OtherCells) -> tuple[list[tuple[str, int]], bool]:
    nodes, whole = parse_json(text)
    code: list[tuple[str, int]] = []
    for lines in _code_cells(nodes):
        first = lines[0][0] if lines else ""
        if _SHELL_CELL.match(first) or _WRITTEN_FILE.match(first):
            others.foreign_cell(lines)
        elif not _OTHER_CELL.match(first):
            code.extend(others.python_lines(lines))
            code.append(("", lines[-1][1] if lines else 0))
    return code, whole


def _code_cells(nodes: list[Node]) -> list[list[tuple[str, int]]]:
    """The lines of each code cell, with their line in the file."""
    found: list[list[tuple[str, int]]] = []
    for root in nodes:
        holders = [root, *_entries(root, "worksheets")]  # notebooks of 2014 keep their cells in worksheets
        for holder in holders:
            for cell in _entries(holder, "cells"):
                kind = cell.value.get("cell_type") if isinstance(cell.value, dict) else None
                if kind is not None and kind.value == "code":
                    found.append(_lines_of(cell.value.get("source") or cell.value.get("input")))
    return [lines for lines in found if lines]


def _entries(node: Node, key: str) -> list[Node]:
    inner = node.value.get(key) if isinstance(node.value, dict) else None
    return inner.value if inner is not None and isinstance(inner.value, list) else []


def _lines_of(node: Node | None) -> list[tuple[str, int]]:
    if node is None:
        return []
    parts = node.value if isinstance(node.value, list) else [node]
    return [
        (line, part.line)
        for part in parts
        if isinstance(part.value, str)
        for line in part.value.removesuffix("\n").split("\n")
    ]


class _OtherCells:
    """The parts of a notebook that are not Python: magics, commands, cells in other languages."""

    def __init__(self, source: str, read: Reader) -> None:
        self.source = source
        self._read = read
        self.settings: list[Setting] = []
        self.notes: list[tuple[str, str]] = []

    def python_lines(self, lines: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """The cell as Python: a magic becomes `pass` and is read as a command."""
        kept: list[tuple[str, int]] = []
        command = ""
        command_line = 0
        for line, number in lines:
            started = _COMMAND.match(line) if not command else None
            if started or command:
                text = started.group(1) if started else line
                command_line = command_line if command else number
                command += text.rstrip().removesuffix("\\") + "\n"
                if not text.rstrip().endswith("\\"):
                    self._command(command, command_line)
                    command = ""
                kept.append((_passed(line) if started else "", number))
            elif line.lstrip().startswith("%") or (line.rstrip().endswith("?") and "#" not in line):
                variable = _ENVIRONMENT.match(line)
                if variable:
                    name, value = variable.groups()
                    self.settings.append(Setting(name, value, self.source, number, "notebook"))
                kept.append((_passed(line), number))
            else:
                kept.append((line, number))
        if command:
            self._command(command, command_line)
        return kept

    def foreign_cell(self, lines: list[tuple[str, int]]) -> None:
        """`%%bash` and `%%writefile ds_config.json`: the rest of the cell is a separate file."""
        written = _WRITTEN_FILE.match(lines[0][0])
        text = "\n".join(line for line, _ in lines[1:])
        kind = kind_of(written.group(1), text[:4096].encode()) if written else "shell"
        if kind in {"notebook", "pickle"}:  # no nested notebooks
            return
        found = self._read(kind, text, self.source)
        for each in found:
            line = lines[min(each.line, len(lines) - 1)][1]
            self.settings.append(Setting(each.name, each.value, self.source, line, each.kind))
        self.notes.extend((f"{self.source}:{lines[0][1]}", note) for _, note in found.notes)

    def _command(self, text: str, line: int) -> None:
        self.settings.extend(settings_of_command(text, self.source, line))
        self.notes.append((f"{self.source}:{line}", " ".join(text.split())[:2000]))


def _passed(line: str) -> str:
    return line[: len(line) - len(line.lstrip())] + "pass"
