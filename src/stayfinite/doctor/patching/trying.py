"""Try patches: each runs in its own process and is verified only if the fault is gone."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.doctor.frames import is_users
from stayfinite.doctor.judges.course import ends
from stayfinite.doctor.patching.loop_remedies import LOOP_REMEDIES
from stayfinite.doctor.patching.loss_remedies import LOSS_REMEDIES
from stayfinite.doctor.patching.text import Case, Text
from stayfinite.doctor.session import Seen
from stayfinite.doctor.told import Told

MOST_TRIED = 4
"""Patches to run."""
LEAST_SECONDS = 60.0
SLOWER = 4.0
"""Time limit of a patched copy: this multiple of the program's time, plus the seconds above."""
BETTER = 0.9
"""If nothing was learned, the patched copy must end below this share of the original's loss."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch for the top finding."""

    file: Path
    """The file it changes."""
    diff: str
    text: str
    cause: str
    verified: bool
    words: str
    """Result of the patched copy."""


@dataclass(frozen=True, slots=True)
class NoPatch:
    """No patch for the top finding."""

    why: str
    fix: str


def make_patch(seen: Seen, script: Path | None, words: list[str], code: int) -> Patch | NoPatch:
    """The first patch whose copy runs without the fault; else the likeliest, unverified; else the reason for none.

    Arguments:
        script: the program's file; None if started as a module.
        words: the program and its arguments, as passed to ``stayfinite doctor``.
        code: its exit code.
    """
    top = next((each for each in seen.findings if each.loud), None)
    if top is None:
        return NoPatch("no line of the program was identified", "see its fix")
    fix = top.finding.fix
    file = _file_of(top, seen, script)
    if file is None:
        return NoPatch("the fault is not in your files", fix)
    if file.suffix != ".py":
        return NoPatch(f"{file.name} is a notebook", fix)
    original = file.read_text(encoding="utf-8")
    best: Patch | None = None
    tried: set[str] = {original}
    remedy = (LOOP_REMEDIES | LOSS_REMEDIES).get(top.finding.cause)
    for text in () if remedy is None else remedy(Case(Text(original), top, seen.program)):
        if text in tried or len(tried) > MOST_TRIED or not _compiles(text):
            continue
        tried.add(text)
        said = _run(file, text, words, seen.program.seconds, imported=script is None or not file.samefile(script))
        verified, outcome = _judged(seen, top.finding.cause, said, code)
        patch = Patch(file, _diff(original, text, _from_here(file)), text, top.finding.cause, verified, outcome)
        if verified:
            return patch
        best = best or patch
    return best or NoPatch(f"no edit of {file.name} is known to fix {top.finding.cause}", fix)


def _file_of(top: Told, seen: Seen, script: Path | None) -> Path | None:
    """The user's file to patch: where the finding points, else where backward is called, else the script."""
    places = [top.place[0], *(place[0] for place in seen.program.losses)]
    named = [Path(name) for name in places if name and is_users(name) and Path(name).is_file()]
    if script is not None and script.suffix != ".py":
        return script
    return next(iter(named), script)


def _from_here(file: Path) -> str:
    """Path relative to the current directory, for ``patch -p1``."""
    try:
        return file.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return file.name


def _compiles(text: str) -> bool:
    try:
        compile(text, "patched", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _run(file: Path, text: str, words: list[str], seconds: float, *, imported: bool) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory(prefix="stayfinite-patch-") as folder:
        copy = Path(folder) / "patched.py"
        copy.write_text(text, encoding="utf-8")
        command = [sys.executable, "-W", "ignore", "-m", "stayfinite", "doctor", "--json", "--instead", str(copy)]
        command += ["--instead-of", str(file)] if imported else []
        try:
            ended = subprocess.run(
                [*command, *words], capture_output=True, text=True, timeout=LEAST_SECONDS + SLOWER * seconds,
                env=dict(os.environ), check=False,
            )  # fmt: skip
            found: dict[str, Any] = json.loads(ended.stdout)
        except (subprocess.TimeoutExpired, ValueError, OSError):
            return None
    return found


def _judged(seen: Seen, cause: str, said: dict[str, Any] | None, code: int) -> tuple[bool, str]:
    """Whether the fault is gone in the patched copy, and the result in words."""
    if said is None:
        return False, "not verified: the patched copy gave no result"
    if said["exit_code"] not in (0, code) or (code and said["exit_code"]):
        return False, f"not verified: the patched copy ended with exit code {said['exit_code']}"
    bad = seen.program.bad
    if said["bad_step"] is not None:
        return False, f"not verified: the patched copy fails at step {said['bad_step']}"
    if any(each["cause"] == cause and each["severity"] != "info" for each in said["findings"]):
        return False, f"not verified: the patched copy still shows {cause}"
    if bad is not None:
        if said["steps"] <= bad.step:
            return False, "not verified: the patched copy ended early"
        return True, f"verified: the patched copy ran {said['steps']} steps, past step {bad.step}"
    if any(each["severity"] == "error" for each in said["findings"]):
        return False, f"not verified: the patched copy shows {said['findings'][0]['cause']}"
    course = seen.program.main_loss()
    losses = said.get("losses") or []
    if cause in NOT_LEARNING and len(course.finite) and len(losses) == 2:
        before = ends(course)
        if not losses[1] < max(BETTER * before[1], before[1] - 0.1 * abs(before[1])):
            return False, "not verified: the patched copy learns no better"
    return True, f"verified: the patched copy ran {said['steps']} steps without {cause}"


NOT_LEARNING = frozenset({
    "lr-zero", "lr-too-low", "lr-too-high", "cleared-before-step", "detached-loss", "labels-shuffled",
})  # fmt: skip
"""Causes of a loss that does not fall: a patch must make it fall."""
