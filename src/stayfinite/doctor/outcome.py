"""Outcome of a watched program: findings, how it ended, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.doctor.judges.course import ends, stands_still
from stayfinite.doctor.ranks import started, with_other_ranks
from stayfinite.doctor.record import Program
from stayfinite.doctor.session import Seen, plain
from stayfinite.doctor.texts import findings_in_texts

NOT_TRAINED = "the program ended without training: no backward pass was seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    code: int
    """Exit code."""
    after_minutes: float | None = None
    """The time limit that stopped it, or None."""
    strict: bool = False
    """Whether it stops at its first bad step."""


def outcome(seen: Seen, ended: Ended, script: Path | None, output: Path) -> dict[str, Any]:
    """Outcome of the program's own loop, as plain data.

    Arguments:
        script: the program's file; None for a module.
        output: the program's output. Both files are read if it failed or did not train.
    """
    said, program = plain(seen), seen.program
    if started() > 1:
        said["findings"] = with_other_ranks(said["findings"], hurry=ended.code != 0)
    if ended.code or not program.trains or program.steps < 2:
        said["findings"] += findings_in_texts(seen, script, output)
    sick = any(each["severity"] != "info" for each in said["findings"])
    still = not sick and stands_still(program)
    words = _in_words(program, ended) or ("the loss does not move, and no cause was found" if still else "")
    if words:
        said["ended"] = words
    healthy = program.steps >= 2 and ended.code == 0 and not still
    said["verdict"] = "sick" if sick else "healthy" if healthy else "unknown"
    losses = program.main_loss()
    said["losses"] = list(ends(losses)) if len(losses.finite) else []
    return said


def _in_words(program: Program, ended: Ended) -> str:
    """How a program ended; empty if it trained to its end."""
    if ended.after_minutes is not None:
        stopped = f"stopped after {ended.after_minutes:g} minutes"
        return stopped if program.trains else f"{stopped}; no backward pass was seen"
    if ended.strict and program.bad is not None:
        return f"stopped at its first bad step, {program.bad.step}"
    if not program.trains:
        return NOT_TRAINED if ended.code == 0 else f"the program ended with exit code {ended.code} before it trained"
    return f"the program ended with exit code {ended.code} at step {program.steps}" if ended.code else ""
