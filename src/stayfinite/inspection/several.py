"""Inspect several runs and combine the results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from stayfinite.errors import UsageError
from stayfinite.inspection.check_list import Line
from stayfinite.inspection.ignoring import BadIgnore
from stayfinite.inspection.inspection import Inspection


def inspect_each(runs: Sequence[Sequence[str]], look: Callable[[Sequence[str]], Inspection]) -> Inspection:
    """Inspect each run. Files that are not a training are skipped, with the reason.

    Raises UsageError if a file does not exist or an ignore comment is invalid.
    """
    parts: list[Inspection] = []
    for run in runs:
        name = " ".join(run)
        try:
            found = look(run)
        except BadIgnore:
            raise  # the user must correct an invalid ignore comment
        except UsageError as error:
            if any(len(each.split()) == 1 and not os.path.lexists(each) for each in run):
                raise  # otherwise a misspelled name would always pass
            skipped = Line(status="skip", group=name, title="not checked", seen=error.message)
            parts.append(Inspection(banner=[], lines=[skipped], findings=[]))
            continue
        lines = [replace(line, group=f"{name}: {line.group}") for line in found.lines] if len(runs) > 1 else found.lines
        parts.append(replace(found, lines=lines))
    return Inspection(
        banner=list(dict(pair for part in parts for pair in part.banner).items()),
        lines=[line for part in parts for line in part.lines],
        findings=[finding for part in parts for finding in part.findings],
        tables=[table for part in parts for table in part.tables],
        ignored=[each for part in parts for each in part.ignored],
        edits=[edit for part in parts for edit in part.edits],
    )
