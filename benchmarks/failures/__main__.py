"""How often tools are right about training failures.

python -m benchmarks.failures                                         # all parts, all tools that are installed
python -m benchmarks.failures --tools stayfinite,anomaly --parts programs,steps --split unseen
python -m benchmarks.failures --parts programs --only no-zero         # cases whose name holds this; a line each
python -m benchmarks.failures --parts logs --split unseen --write     # fills the tables in results/ and README.md
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import warnings
from collections.abc import Callable, Collection, Sequence

import torch

from benchmarks.failures import tables
from benchmarks.failures.adapters import TOOLS
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.campaign import READERS, campaign
from benchmarks.failures.cases import PARTS, SPLITS, Case, Result
from benchmarks.failures.scoring import TIMED, score

USED = {tool.name: tool.about for tool in (make() for make in TOOLS.values())}
"""The tools in the order of the tables, and how each is used."""


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = ",".join(name for name, tool in TOOLS.items() if tool().default)
    parser.add_argument("--tools", type=_list_of(TOOLS), default=usual, help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--parts", type=_list_of(PARTS), default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--split", type=_list_of(SPLITS), default=",".join(SPLITS), help=f"of {', '.join(SPLITS)}")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--base", default="", help="programs made of this one")
    parser.add_argument("--jobs", type=int, default=2, help="cases under way at a time (default: 2)")
    parser.add_argument("--quiet", action="store_true", help="a line only for what was missed or a false alarm")
    parser.add_argument("--write", action="store_true", help="fill benchmarks/results/failures.md and README.md")
    given = parser.parse_args(words)
    if given.write and (given.only or given.base):
        parser.error("--write takes all cases: leave --only and --base out")
    return given


def _list_of(allowed: Collection[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(allowed)}")
        return names

    return read


def main(words: Sequence[str] | None = None) -> int:
    """Run, print, and keep if asked to."""
    given = read_arguments(words)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tools = [TOOLS[name]() for name in given.tools]
    for tool in tools:
        if not tool.installed:
            print(f"left out, not installed: {tool.name} (needs {', '.join(tool.needs)})")
    tools = [tool for tool in tools if tool.installed]
    for tool in tools:
        tool.prepare()
    _warm_up()
    scores, measured = tables.load() if given.write else ({}, {})
    for split in given.split:
        for part in given.parts:
            cases = [each for each in READERS[part](split) if given.only in each.name]
            cases = [each for each in cases if given.base in getattr(each, "base", "")]
            if not cases:
                continue
            results = {tool.name: _told(tool, cases, given) for tool in tools if tool.can(part)}
            plain = _plain(cases, results) if part == TIMED else {}
            kept = scores.setdefault(split, {}).setdefault(part, {})
            kept.update(
                {tool.name: score(results[tool.name], plain if tool.runs else {}) for tool in tools if tool.can(part)}
            )
            measured[f"{split} {part}"] = _here()
    _print(scores)
    if given.write:
        _write(scores, measured)
    return 0


def _warm_up() -> None:
    """Take a step here: what torch imports that late would otherwise be paid for by every forked process."""
    layer = torch.nn.Linear(1, 1)
    layer(torch.ones(1, 1)).sum().backward()
    torch.optim.Adam(layer.parameters()).step()


def _told(tool: Tool, cases: list[Case], given: argparse.Namespace) -> list[Result]:
    """The results of one tool, told as they come."""
    results = []
    for result in campaign(tool, cases, given.jobs):
        results.append(result)
        if not given.quiet or result.mark in ("MISSED", "ALARM", "failed"):
            causes = ", ".join((*result.answer.first, *result.answer.others[:2]))
            wanted = "" if result.right or result.case.healthy else f"(wanted {', '.join(result.case.causes)})"
            line = f"{tool.name:24} {result.mark:7}{result.case.name:44}{result.seconds:7.2f} s  {causes} {wanted}"
            print(f"{line}  {result.answer.words[:80]} {result.error}".rstrip(), flush=True)
    return results


def _plain(cases: list[Case], results: dict[str, list[Result]]) -> dict[str, float]:
    """The seconds of healthy programs alone, measured in this run even if nobody asked for it."""
    alone = TOOLS["plain"]()
    told = results.get(alone.name) or list(campaign(alone, [each for each in cases if each.healthy], 2))
    return {each.case.name: each.seconds for each in told if each.case.healthy and not each.error}


def _here() -> str:
    day = datetime.datetime.now(tz=datetime.UTC).date()
    return f"{day}, torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores"


def _print(scores: tables.Scores) -> None:
    for split in scores:
        print(f"\n{split}\n\n{tables.short(scores, split, USED)}")
        for part in scores[split]:
            print(f"\n{part}, {split}\n\n{tables.long(scores, split, part)}")


def _write(scores: tables.Scores, measured: dict[str, str]) -> None:
    tables.save(scores, measured)
    tables.TABLE.write_text(tables.page(scores, measured, USED), encoding="utf-8")
    readme = tables.README.read_text(encoding="utf-8")
    tables.README.write_text(tables.into_readme(readme, tables.short(scores, "unseen", USED)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
