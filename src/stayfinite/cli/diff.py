"""``stayfinite diff A B``: compare two configs, scripts, notebooks or commands."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from stayfinite.cli.ending import command, print_json


@dataclass(frozen=True, kw_only=True)
class Diff:
    """Compare two configs, scripts, notebooks or commands (in quotes), stability first. Nothing is executed. Exit code
    0: same, 1: different, 2: wrong use.
    """

    left: Annotated[str, tyro.conf.Positional]
    """A config, a script, a notebook, or a command in quotes."""

    right: Annotated[str, tyro.conf.Positional]
    """Another one, of any kind."""

    all: bool = False
    """Show every setting that only one side has, not only those that affect stability."""

    json: bool = False
    """Print the comparison as JSON and nothing else."""


@command(Diff)
def run(settings: Diff) -> int:
    """Run the command; 0 if both are the same, 1 if they differ, 2 on wrong use."""
    from stayfinite.inspection.files.comparison import compare

    found = compare(settings.left, settings.right)
    if settings.json:
        print_json("diff", found.to_json(), ensure_ascii=False)
    else:
        from stayfinite.report.difference import show_difference
        from stayfinite.report.standard_output import StandardOutput

        show_difference(found.to_json(), StandardOutput(), everything=settings.all)
    return int(not found.same)
