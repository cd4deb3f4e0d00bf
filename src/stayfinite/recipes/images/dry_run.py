"""Show the check list of a dry run."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from stayfinite.errors import NotReady
from stayfinite.inspection.inspection import Inspection
from stayfinite.report.inspection import show_inspection


def show_dry_run(found: Inspection, steps: int, say: Callable[[str], None]) -> None:
    """Print banner and check list.

    Raises:
        NotReady: the check found an error.
    """
    paper = io.StringIO()
    show_inspection(found.to_json(), Console(file=paper, width=120), verbose=True)
    say("\n".join(line.rstrip() for line in paper.getvalue().splitlines()))
    wrong = [each for each in found.findings if each.severity == "error"]
    if wrong:
        raise NotReady(f"the dry run found {wrong[0].code} ({wrong[0].cause}): {wrong[0].title}", fix=wrong[0].fix)
    say(f"dry run: {steps:,} steps planned; nothing written")
