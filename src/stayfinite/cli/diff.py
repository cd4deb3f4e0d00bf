"""``stayfinite diff A B``: compare two configs, scripts, notebooks or commands."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro

from stayfinite.cli.ending import command, tell


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
    from stayfinite.report.difference import show_difference

    found = compare(settings.left, settings.right)
    show = partial(show_difference, everything=settings.all)
    tell("diff", found.to_json(), show, as_json=settings.json, ensure_ascii=False)
    return int(not found.same)
