"""Collect the settings of one script without duplicates, and the lines worth noting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.commands import settings_of_command
from stayfinite.readers.configs.tree import MOST_SETTINGS, Node, node_of, settings_of

_MOST_NOTES = 2_000


class ScriptSettings:
    """Settings and notes of a script being read."""

    def __init__(self, source: str, kind: str) -> None:
        self.source = source
        self.kind = kind
        self.settings: list[tuple[int, Setting]] = []
        """Each with the script line where it is used."""
        self.note_lines: list[tuple[int, str]] = []
        self._seen: set[tuple[str, str, str, int, str]] = set()

    @property
    def full(self) -> bool:
        """Whether the limit of settings is reached."""
        return len(self.settings) >= MOST_SETTINGS

    def add(self, name: str, value: object, line: int) -> None:
        """Add a setting that is written where it is used."""
        self.add_node(name, node_of(value, line))

    def add_node(
        self,
        name: str,
        node: Node,
        *,
        kind: str = "",
        at: int = 0,
        once: bool = False,
        bound_to: str = "",
        doubtful: bool = False,
    ) -> None:
        """Add a value or all leaves of a dict, unless known from this line (with ``once``: from any line)."""
        if kind:
            node = Node(node.value, node.line, node.label, node.source)
        for each in settings_of(node, self.source, prefix=name, kind=kind or self.kind):
            mark = (each.name, repr(each.value), each.source, 0 if once else each.line, "" if once else bound_to)
            if mark not in self._seen and not self.full:
                self._seen.add(mark)
                kept = Setting(each.name, each.value, each.source, each.line, each.kind, bound_to, doubtful)
                self.settings.append((at or each.line, kept))

    def add_command(self, text: str, line: int, *, noted: bool = True) -> None:
        """Add the settings of a command in the script."""
        self.settings.extend((line, each) for each in settings_of_command(text, self.source, line))
        if noted:
            self.note(line, " ".join(text.split())[:2000])

    def note(self, line: int, text: str) -> None:
        if len(self.note_lines) < _MOST_NOTES:
            self.note_lines.append((line, text))

    def result(self, file_lines: list[int] | None = None, more: Iterable[Setting] = ()) -> Settings:
        """The settings in line order, with ``file_lines`` mapping text lines to file lines.

        ``more`` holds settings read elsewhere, with file lines.
        """

        def mapped(line: int) -> int:
            return file_lines[line - 1] if file_lines and 0 < line <= len(file_lines) else line

        own = [
            (mapped(at), replace(each, line=mapped(each.line)) if each.source == self.source else each)
            for at, each in self.settings
        ]
        ordered = sorted([*own, *((each.line, each) for each in more)], key=lambda each: each[0])
        return Settings(
            [each for _, each in ordered[:MOST_SETTINGS]],
            [(f"{self.source}:{mapped(line)}", text) for line, text in self.note_lines],
        )
