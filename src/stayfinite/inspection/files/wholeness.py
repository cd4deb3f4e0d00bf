"""Files that their own parser rejects: a launch fails on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.files.sources import Source
from stayfinite.readers.configs.script_settings import syntax_error

MEND = "correct that line"

_AT_LINE = lazy_regex(r", line (\d+)$| \(at line (\d+), column \d+\)$")
_OWN_LIMIT = lazy_regex(r"not installed|nested deeper|entries|steps")
"""Ends a reading although the file may be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """A syntax error that stops the reading of a file."""

    text: str
    where: str
    in_a_cell: bool = False
    """Only a notebook's code is wrong: its other cells still run."""


def broken_in(sources: Iterable[Source]) -> list[Breakage]:
    """The syntax errors of these files, at most one each."""
    return [found for source in sources if (found := next(_of(source), None)) is not None]


def _of(source: Source) -> Iterator[Breakage]:
    if source.kind == "script" and source.name.endswith(".py"):
        error = syntax_error(source.text)
        if error is not None:
            yield Breakage(text=f"syntax error: {error[1]}", where=f"{source.name}:{error[0]}")
    if source.kind not in ("json", "yaml", "toml", "notebook"):
        return
    for where, text in source.settings.notes:
        if where != source.name:
            continue
        if text.startswith("incomplete"):
            yield _cut_json(source)
        elif text.startswith("read line by line: "):
            cell = source.kind == "notebook"
            problem = text.removeprefix("read line by line: ")
            at = _AT_LINE.search(problem)
            if _OWN_LIMIT.search(problem) is None:
                line = f":{at[1] or at[2]}" if at is not None else ""
                yield Breakage(text=_AT_LINE.sub("", problem), where=f"{where}{line}", in_a_cell=cell)


def _cut_json(source: Source) -> Breakage:
    """Where JSON ends before its brackets are closed; a comment before that place is no error to its reader."""
    try:
        json.loads(source.text)
    except RecursionError:
        pass
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        return Breakage(text=f"incomplete JSON: {re.sub(r':? line.*', '', str(error))}", where=f"{source.name}:{line}")
    return Breakage(text="incomplete JSON", where=source.name)
