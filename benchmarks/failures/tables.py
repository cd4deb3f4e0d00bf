"""Draws the scores, and keeps them: a later run replaces what it has measured anew and leaves the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.failures.cases import PARTS, SPLITS
from benchmarks.failures.scoring import Score

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "failures.json"
TABLE = ROOT / "benchmarks" / "results" / "failures.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- failures: written by python -m benchmarks.failures --write -->", "<!-- end of failures -->"
DASH = "-"

Scores = dict[str, dict[str, dict[str, Score]]]
"""By split, part and tool."""


def load(path: Path = KEPT) -> tuple[Scores, dict[str, str]]:
    """The scores of earlier runs, and when and where each part of a split was measured."""
    if not path.exists():
        return {}, {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    scores = {
        split: {part: {tool: Score(**each) for tool, each in tools.items()} for part, tools in parts.items()}
        for split, parts in kept["scores"].items()
    }
    return scores, kept["measured"]


def save(scores: Scores, measured: Mapping[str, str], path: Path = KEPT) -> None:
    """Keep them."""
    plain = {
        split: {part: {tool: asdict(each) for tool, each in tools.items()} for part, tools in parts.items()}
        for split, parts in scores.items()
    }
    path.write_text(json.dumps({"measured": dict(measured), "scores": plain}, indent=1) + "\n", encoding="utf-8")


def short(scores: Scores, split: str, order: Iterable[str]) -> str:
    """A row for each tool, in this order, the parts side by side; a dash where a tool cannot do a part."""
    parts = [part for part in PARTS if scores.get(split, {}).get(part)]
    if not parts:
        return "No cases yet."
    head = ["tool"]
    for part in parts:
        head += [f"{part}: detected", "cause right", "false alarms", *(["cost"] if part == "programs" else [])]
    rows = [head]
    for tool in (each for each in order if any(each in scores[split][part] for part in parts)):
        row = [tool]
        for part in parts:
            row += _cells(scores[split][part].get(tool), with_cost=part == "programs")
        rows.append(row)
    return _markdown(rows)


def _cells(score: Score | None, *, with_cost: bool) -> list[str]:
    if score is None:
        return [DASH] * (4 if with_cost else 3)
    cost = [DASH if score.cost is None else f"{score.cost:.2f}x"] if with_cost else []
    return [
        _of(score.detected, score.faulty),
        _of(score.right, score.faulty),
        _of(score.alarms, score.healthy),
        *cost,
    ]


def long(scores: Scores, split: str, part: str) -> str:
    """Everything on one part."""
    tools = scores.get(split, {}).get(part, {})
    if not tools:
        return "No cases yet."
    rows = [
        [
            "tool",
            "detected",
            "cause right",
            "among three",
            "fix verified",
            "false alarms",
            "no answer",
            "s a case",
            "cost",
        ]
    ]
    for tool, each in tools.items():
        rows.append([
            tool, _of(each.detected, each.faulty), _of(each.right, each.faulty), _of(each.among, each.faulty),
            str(each.fixed) if each.fixed else DASH, _of(each.alarms, each.healthy), str(each.failed),
            f"{each.seconds:.2f}", DASH if each.cost is None else f"{each.cost:.2f}x",
        ])  # fmt: skip
    return _markdown(rows)


def page(scores: Scores, measured: Mapping[str, str], tools: Mapping[str, str]) -> str:
    """benchmarks/results/failures.md."""
    lines = ["# How often tools are right about training failures", ""]
    lines += ["`python -m benchmarks.failures --write`. [What is counted, and how](../failures/README.md).", ""]
    for split in SPLITS:
        lines += [f"## {split.capitalize()} cases", "", short(scores, split, tools), ""]
        for part in PARTS:
            when = measured.get(f"{split} {part}", "")
            lines += [f"### {part.capitalize()}, {split}", "", long(scores, split, part), ""]
            lines += [f"Measured: {when}.", ""] if when else []
    lines += ["## How each tool was used", "", _markdown([["tool", "used as"], *map(list, tools.items())]), ""]
    return "\n".join(lines)


def into_readme(text: str, table: str) -> str:
    """The README with the table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} ... {END} in the README")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def _of(count: int, of: int) -> str:
    return f"{count} of {of}" if of else DASH


def _markdown(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)
