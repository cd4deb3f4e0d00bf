"""Find where a run was resumed in its log, and what the loss did there."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from stayfinite.core.series import RunSeries
from stayfinite.rules.facts import Facts, Line

RESUMED = (
    r"\bresum(?:e[ds]?|ing)\b(?! download)|\b(?:(?:re-?)?load(?:ed|ing)|restor(?:ed|ing)|"
    r"continu(?:ing|ed)|re-?start(?:ing|ed)?)\b.{0,60}"
    r"\b(?:checkpoint|ckpt|epoch \d|step \d|iteration \d)|continuing training from"
)
"""Messages that announce a resume from a checkpoint."""

SWITCH = (
    "resume_from_checkpoint", "resume", "resume_from", "auto_resume", "resume_path", "load_checkpoint", "restore_file",
    "ckpt_path", "finetune_from",
)  # fmt: skip
"""Settings that request it."""

WINDOW = 5
"""Losses compared on each side."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A resume within one log."""

    before: float
    """Median loss before it."""
    after: float
    """Median of the first losses after it."""
    first: float | None
    """First loss of the log."""
    points: int
    """Losses on the shorter side."""
    lr_before: float | None
    lr_after: float | None
    where: str


def resumed(facts: Facts) -> Line | None:
    """``(text, where)`` that shows that this run resumed from a checkpoint."""
    for name in SWITCH:
        for setting in facts.settings.all(name):
            if setting.value not in (None, False, "", "None", "none", "False", "false", "null", 0):
                return Line(setting.where, f"{setting.name}: {setting.value}")
    said = facts.said(RESUMED)
    if said:
        return Line(said.where, said.text.strip())
    note = facts.settings.search(r"--resume\b|\bresum(?:e|ed|ing)\b|load_weights\(.{0,40}(?:find_last|latest|last)")
    return None if note is None else Line(note[0], note[1].strip())


def restart(facts: Facts) -> Restart | None:
    """The resume inside a log: a message between two losses, else a jump of the loss level."""
    for run in facts.runs:
        losses = [(value, line) for _, value, line in run.column("loss") if math.isfinite(value)]
        cut = _message_between(run, losses)
        if cut is None and resumed(facts) is not None:
            cut = _new_level(losses)
        if cut is not None:
            return _restart(run, losses, cut)
    return None


def _restart(run: RunSeries, losses: list[tuple[float, int]], cut: int) -> Restart:
    before = [value for value, _ in losses[max(0, cut - WINDOW) : cut]]
    after = [value for value, _ in losses[cut : cut + WINDOW]]
    rates = [rate for rate in run.column("lr") if math.isfinite(rate[1])]
    line = losses[cut][1]
    return Restart(
        before=median(before),
        after=median(after),
        first=losses[0][0] if cut > 1 else None,
        points=min(len(before), len(after)),
        lr_before=next((value for _, value, at in reversed(rates) if at < line), None),
        lr_after=next((value for _, value, at in rates if at >= line), None),
        where=run.where(line),
    )


def _message_between(run: RunSeries, losses: list[tuple[float, int]]) -> int | None:
    lines = [message.line for message in run.messages if _says_so(message.text)]
    pairs = enumerate(pairwise(losses), 1)
    return next((i for i, (one, two) in pairs if any(one[1] < line <= two[1] for line in lines)), None)


def _new_level(losses: list[tuple[float, int]]) -> int | None:
    """Where the loss jumps by half or more above everything just before, and stays there."""
    for cut in range(1, len(losses)):
        before = [value for value, _ in losses[max(0, cut - WINDOW) : cut]]
        after = [value for value, _ in losses[cut : cut + WINDOW]]
        if min(before) > 0 and losses[cut][0] > 1.5 * max(before) and median(after) > 1.3 * max(before):
            return cut
    return None


def _says_so(text: str) -> bool:
    return re.search(RESUMED, text, re.IGNORECASE) is not None
