"""Read Python scripts by their syntax tree; nothing is executed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.commands import looks_like_command
from stayfinite.readers.configs.literals import parse_literal
from stayfinite.readers.configs.notes import spoken_pairs
from stayfinite.readers.configs.program.program import follow
from stayfinite.readers.configs.program.state import ANY_CARD, Surroundings
from stayfinite.readers.configs.script_notes import take_notes
from stayfinite.readers.configs.script_settings import ScriptSettings, parse_python
from stayfinite.readers.configs.tree import settings_of

MOST_LINES = 20_000
_MOST_LINES = 2_000  # of a part that does not parse


def read_script(
    text: str,
    source: str,
    *,
    kind: str = "script",
    file_lines: list[int] | None = None,
    more: Iterable[Setting] = (),
    surroundings: Surroundings = ANY_CARD,
) -> Settings:
    """The settings of a script, and as notes the lines that compute its loss.

    Arguments:
        file_lines: the file line of each text line, where they differ (a notebook).
        more: settings read elsewhere, to be merged in line order.
        surroundings: the assumed GPU and command.
    """
    found = ScriptSettings(source, kind)
    lines = text.split("\n", MOST_LINES)
    if len(lines) > MOST_LINES:
        text = "\n".join(lines[:MOST_LINES])
        found.note(MOST_LINES, f"only the first {MOST_LINES:,} lines were read")
    parsed = parse_python(text)
    if parsed is None:
        note = (source, "read line by line: invalid Python")
        for number, line in enumerate(text.split("\n")[:_MOST_LINES], 1):
            _take_piece(found, number, line)
        return Settings(notes=[note]) + found.result(file_lines, more)
    follow(parsed.tree, text, found, surroundings, alone=False)
    take_notes(parsed.tree, text, found)
    for number, piece in parsed.lost:
        _take_piece(found, number, piece)
    return found.result(file_lines, more)


def settings_of_code(text: str, source: str, *, first_line: int = 1) -> list[Setting] | None:
    """The settings of a code snippet, where every argument counts; None if it is not code."""
    parsed = parse_python(text)
    if parsed is None or parsed.lost:
        return None
    found = ScriptSettings(source, "file")
    follow(parsed.tree, text, found, ANY_CARD, every=True, alone=True)
    take_notes(parsed.tree, text, found)
    return [replace(each, line=each.line + first_line - 1 if each.line else 0) for each in found.result()]


def _take_piece(found: ScriptSettings, first_line: int, piece: str) -> None:
    """Read text that is not Python: a truncated call, or lines with `name=value`."""
    bracket = piece.find("(")
    start = max(piece.rfind(each, 0, bracket) for each in " \t=,;") + 1
    parsed = parse_literal(piece, start) if bracket > start else None
    if parsed is not None and isinstance(parsed.node.value, dict) and parsed.node.label:
        for setting in settings_of(parsed.node, found.source, prefix=parsed.node.label):
            found.add(setting.name, setting.value, setting.line + first_line - 1)
        return
    for offset, line in enumerate(piece.split("\n")[:_MOST_LINES]):
        if looks_like_command(line):
            found.add_command(line, first_line + offset)
            continue
        for name, value in spoken_pairs(line):
            found.add(name, value, first_line + offset)
