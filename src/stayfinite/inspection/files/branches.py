"""Find lines of a script that do not run: those behind a disabled switch, and one of two branches."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence

from stayfinite.core.settings import Settings
from stayfinite.inspection.files.sources import Source


def lines_switched_off(sources: Sequence[Source], settings: Settings) -> frozenset[str]:
    """Locations (`train.py:111`) that these settings never reach: ``if args.use_adam:`` with the flag off."""
    return frozenset(
        f"{source.name}:{line}"
        for source in sources
        if source.kind == "script"
        for branch in _branches(source.text, settings)
        for line in _lines(branch)
    )


class EitherOr:
    """Pairs of locations in opposite branches of a condition."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._pairs = [
            (source.name, _lines(node.body), _lines(node.orelse))
            for source in sources
            if source.kind == "script"
            for node in _conditions(source.text)
            if node.orelse
        ]

    def __contains__(self, places: tuple[str, str]) -> bool:
        (one, first), (other, second) = (_split(place) for place in places)
        return one == other and any(
            name == one and ((first in yes and second in no) or (first in no and second in yes))
            for name, yes, no in self._pairs
        )


def _split(place: str) -> tuple[str, int]:
    name, _, line = place.rpartition(":")
    return (name, int(line)) if line.isdigit() else (place, 0)


def _lines(statements: list[ast.stmt]) -> range:
    last = statements[-1]
    return range(statements[0].lineno, (last.end_lineno or last.lineno) + 1)


def _conditions(text: str) -> list[ast.If]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _branches(text: str, settings: Settings) -> Iterator[list[ast.stmt]]:
    for node in _conditions(text):
        taken = _value(node.test, settings)
        branch = [] if taken is None else node.orelse if taken else node.body
        if branch:
            yield branch


def _value(test: ast.expr, settings: Settings) -> bool | None:
    """The value of a condition made of switches; None if unknown. Only False is reliable."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = _value(test.operand, settings)
        return None if value is None else not value
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return False if any(_value(each, settings) is False for each in test.values) else None
    if not isinstance(test, ast.Attribute):
        return None
    # `args.fp16` is the setting. A bare name may be reassigned, and an enabled flag may be disabled later.
    setting = settings.find(test.attr)
    return False if setting is not None and setting.value is False and setting.plain == test.attr.lower() else None
