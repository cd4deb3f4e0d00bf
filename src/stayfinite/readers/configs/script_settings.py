"""What is gathered from one script: settings without repetitions, and the lines worth a note."""

from __future__ import annotations

from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.commands import settings_of_command
from stayfinite.readers.configs.tree import MOST_SETTINGS, Node, settings_of

_MOST_NOTES = 2_000


class ScriptSettings:
    """Fills up while a script is walked over."""

    def __init__(self, source: str, kind: str) -> None:
        self.source = source
        self.kind = kind
        self.settings: list[Setting] = []
        self.note_lines: list[tuple[int, str]] = []
        self._seen: set[tuple[str, str, int]] = set()

    @property
    def full(self) -> bool:
        """Whether there is room for no further setting."""
        return len(self.settings) >= MOST_SETTINGS

    def add(self, name: str, value: object, line: int, *, kind: str = "", once: bool = False) -> None:
        """One setting, unless it is known from this line (or, with ``once``, from any)."""
        mark = (name, repr(value), 0 if once else line)
        if mark not in self._seen and not self.full:
            self._seen.add(mark)
            self.settings.append(Setting(name, value, self.source, line, kind or self.kind))

    def add_node(self, name: str, node: Node, *, kind: str = "") -> None:
        """A value, or all leaves of a dict."""
        for setting in settings_of(node, self.source, prefix=name, kind=kind or self.kind):
            self.add(setting.name, setting.value, setting.line, kind=setting.kind)

    def add_command(self, text: str, line: int, *, noted: bool = True) -> None:
        """A command that the script holds."""
        self.settings.extend(settings_of_command(text, self.source, line))
        if noted:
            self.note(line, " ".join(text.split())[:2000])

    def note(self, line: int, text: str) -> None:
        """A line of code as it stands."""
        if len(self.note_lines) < _MOST_NOTES:
            self.note_lines.append((line, text))

    def result(self, file_lines: list[int] | None = None) -> Settings:
        """In the order of the lines, which ``file_lines`` translates where text and file differ."""

        def mapped(line: int) -> int:
            return file_lines[line - 1] if file_lines and 0 < line <= len(file_lines) else line

        ordered = sorted(self.settings, key=lambda setting: setting.line)[:MOST_SETTINGS]
        settings = [Setting(each.name, each.value, each.source, mapped(each.line), each.kind) for each in ordered]
        return Settings(settings, [(f"{self.source}:{mapped(line)}", text) for line, text in self.note_lines])
