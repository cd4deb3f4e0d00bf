"""``stayfinite doctor train.py [ARGS...]``: run a program as it is, watch it train, prove what is wrong."""

from __future__ import annotations

import difflib
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from stayfinite.cli.ending import tell, tell_error
from stayfinite.diagnosis.gathering import named_like_a_log
from stayfinite.errors import StayfiniteError
from stayfinite.flags import parsed

if TYPE_CHECKING:
    from stayfinite.doctor.session import Seen, Session
    from stayfinite.integrations.attaching import Attached

VALUED = ("--minutes", "--patch", "--instead", "--instead-of", "--second-run", "-m")
"""Flags with a value."""
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Run a training program unmodified, watch it, and report what is wrong. Arguments after PROGRAM are its own."""

    script: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROGRAM")]
    """The script or notebook; with -m, the module."""

    module: Annotated[bool, tyro.conf.arg(aliases=["-m"])] = False
    """The program is a module, as in python -m."""

    guard: bool = False
    """Refuse NaN and inf steps. Without it, every step is taken."""

    strict: bool = False
    """Stop the program at its first bad step."""

    watch: bool = False
    """Monitor only (default)."""

    minutes: float | None = None
    """Stop the program after this many minutes, and report."""

    patch: Path | None = None
    """Write a unified diff of the fix to this file."""

    apply: bool = False
    """Apply the patch to the program's file if it is verified."""

    instead: Path | None = None
    """Run this file instead of the program's, to test a patched copy."""

    instead_of: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The module file that `--instead` replaces, if it is not the program itself."""

    once: bool = False
    """Never run the program a second time."""

    second_run: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Run up to the bad step that the plan in this folder names."""

    json: bool = False
    """Print the diagnosis as JSON; the program's own output goes to standard error."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; the program's exit code if it failed, else 0 clean, 1 with findings, 2 on wrong use."""
    own, its = _parted(arguments)
    if unknown := _unknown_flag(own):
        return tell_error("doctor", unknown, as_json="--json" in own)
    settings = parsed(Doctor, own, "stayfinite doctor", pairs=False)
    wrong = _wrong_use(settings)
    if wrong:
        return tell_error("doctor", wrong, as_json=settings.json)
    if settings.second_run is not None:
        return _run_to_the_bad_step(settings, its)
    from stayfinite.core.policy import Policy
    from stayfinite.doctor.ranks import leave_word, rank
    from stayfinite.doctor.session import Session
    from stayfinite.doctor.stopping import TimeLimit
    from stayfinite.inspection.project import find_project
    from stayfinite.integrations.attaching import attached
    from stayfinite.integrations.scripts import kept_output

    first = rank() == 0
    if first:
        _tell(f"watching {settings.script}{' and refusing bad steps' if settings.guard else ''}")
        if misplaced := misplaced_flags(_words(settings, []), its):
            _tell(misplaced)
    session = Session(guard=settings.guard, strict=settings.strict)
    with tempfile.TemporaryDirectory(prefix="stayfinite-doctor-") as folder:
        output = Path(folder) / "output.log"
        policy = (find_project().policy or Policy()) if settings.guard else Policy.watch()
        with (
            kept_output(output, to_stderr=settings.json, hear=session.printed),
            attached(policy, _tell) as found,
            session.watching(),
            TimeLimit(settings.minutes, session.watcher.steps.end_at_next_step),
        ):
            session.stand_aside = lambda: bool(found.guards or found.own)
            code = _run_program(settings, its)
        if not first:
            leave_word(session.proved())
            return code
        if found.guards or found.own:
            _tell("hooks removed")
            said = _of_a_framework(found, output, settings)
        else:
            said = _of_a_loop(session, output, settings, code, its)
    if said is None:
        return code or 2
    said |= {"exit_code": code, "attached": len(found.guards), "runs": [str(place) for place in found.run_dirs]}
    from stayfinite.report.diagnosis import show_diagnosis, show_seen

    of_framework = partial(show_diagnosis, by_doctor=True)
    kind, show = ("diagnosis", of_framework) if found.guards or found.own else ("doctor", show_seen)
    tell(kind, said, show, as_json=settings.json, ensure_ascii=False)
    return code or int(said["verdict"] in ("sick", "warning"))


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split our arguments from the program's own."""
    at = 0
    words = list(arguments)
    while at < len(words):
        word = words[at]
        if word == "-m":
            return [*words[:at], "--module", *words[at + 1 : at + 2]], words[at + 2 :]
        if not word.startswith("-"):
            return words[: at + 1], words[at + 1 :]
        at += 2 if word in VALUED else 1
    return words, []


def _unknown_flag(own: Sequence[str]) -> str:
    """What is wrong with the first unknown flag before the program; empty if all are known."""
    known = ["--" + each.name.replace("_", "-") for each in fields(Doctor) if each.name != "script"]
    for word in own:
        name = word.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name not in (*known, "--help"):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "stayfinite doctor --help lists the flags"
            return f"no flag {name}; {hint}"
    return ""


NO_PROGRAMS = (
    ".yaml",
    ".yml",
    ".json",
    ".toml",
    ".cfg",
    ".ini",
    ".log",
    ".out",
    ".txt",
    ".csv",
    ".jsonl",
    ".sh",
    ".md",
)


def _wrong_use(settings: Doctor) -> str:
    if settings.apply and settings.patch is None:
        return "--apply needs --patch FILE: the diff is written first"
    if settings.minutes is not None and not settings.minutes > 0:
        return f"--minutes must be above 0, not {settings.minutes:g}"
    if settings.module and settings.script in LAUNCHERS:
        return "run the doctor under the launcher: torchrun --nproc-per-node 2 --no-python stayfinite doctor train.py"
    if settings.module:
        from importlib.util import find_spec

        try:
            found = find_spec(settings.script) is not None
        except (ImportError, ValueError):
            found = False
        return "" if found or _is_local_module(settings.script) else f"no module {settings.script!r}"
    path = Path(settings.script)
    if path.is_dir():
        return f"{settings.script!r} is a directory: name a script in it"
    if not path.is_file():
        return f"no such file: {settings.script!r}"
    if path.suffix.lower() in NO_PROGRAMS:
        command = "diagnose" if named_like_a_log(path) else "check"
        return f"{settings.script} is not a Python program; try stayfinite {command} {shlex.quote(settings.script)}"
    return ""


def _is_local_module(name: str) -> bool:
    place = Path(*name.split("."))
    return place.with_suffix(".py").is_file() or place.is_dir()


def _run_program(settings: Doctor, its: list[str]) -> int:
    from stayfinite.doctor.frames import NOTEBOOKS
    from stayfinite.integrations.scripts import imported_as, run_module, run_script, text_of_notebook

    text = None if settings.instead is None else settings.instead.read_text(encoding="utf-8")
    if settings.instead_of is not None and text is not None:
        with imported_as(settings.instead_of, text):
            return run_module(settings.script, its) if settings.module else run_script(Path(settings.script), its)
    if settings.module:
        return run_module(settings.script, its)
    script = Path(settings.script)
    if script.suffix == ".ipynb":
        text, places = text_of_notebook(script)
        script = script.with_suffix(".ipynb.py")
        NOTEBOOKS[str(script)] = places
    return run_script(script, its, text)


def _words(settings: Doctor, its: list[str]) -> list[str]:
    return [*(["-m"] if settings.module else []), settings.script, *its]


def _run_to_the_bad_step(settings: Doctor, its: list[str]) -> int:
    from stayfinite.doctor.second_run.pass_two import PassTwo

    assert settings.second_run is not None
    second = PassTwo(settings.second_run)
    second.begin()
    code = _run_program(settings, its)
    second.end()
    return code


def pin_hash_seed() -> None:
    """Restart this process with a hash seed if it has none, so a second run iterates over sets in the same order."""
    if "PYTHONHASHSEED" not in os.environ and os.name == "posix":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _of_a_loop(session: Session, output: Path, settings: Doctor, code: int, its: list[str]) -> dict[str, Any]:
    """Result for a program's own loop, with a patch if requested."""
    from stayfinite.doctor.outcome import Ended, outcome
    from stayfinite.doctor.ranks import started

    plan = None if settings.once or settings.instead else session.needs_second_run()
    if plan is not None and started() == 1:
        from stayfinite.doctor.second_run.starting import run_again

        _tell(f"re-running up to step {plan.step} to find the cause")
        session.learn(run_again(plan, _words(settings, its), session.watcher.program.seconds))
    seen = session.conclude(examine=code == 0)
    limit = settings.minutes if session.watcher.steps.time_is_up else None
    said = outcome(seen, Ended(code=code, after_minutes=limit, strict=settings.strict), _script(settings), output)
    if said["verdict"] == "sick" and settings.instead is None and settings.patch is not None:
        said["patch"] = _patched(seen, settings, its, code)
    return said


def _script(settings: Doctor) -> Path | None:
    return None if settings.module else Path(settings.script)


def _patched(seen: Seen, settings: Doctor, its: list[str], code: int) -> dict[str, Any] | None:
    from stayfinite.doctor.patching.trying import NoPatch, make_patch

    assert settings.patch is not None
    made = make_patch(seen, _script(settings), _words(settings, its), code)
    if isinstance(made, NoPatch):
        _tell(f"no patch written: {made.why}. Change it by hand: {made.fix}")
        return None
    settings.patch.write_text(made.diff, encoding="utf-8")
    _tell(f"wrote {settings.patch}: {made.words}")
    if settings.apply:
        if made.verified:
            made.file.write_text(made.text, encoding="utf-8")
            _tell(f"applied to {made.file}")
        else:
            _tell("not applied: the patch is not verified")
    return {"file": str(settings.patch), "verified": made.verified, "words": made.words, "cause": made.cause}


def _of_a_framework(found: Attached, output: Path, settings: Doctor) -> dict[str, Any] | None:
    from stayfinite.doctor.outcome import diagnosis_of

    # A guard's record is better; without one, use the program's output.
    place = found.run_dirs[-1] if found.run_dirs else output
    try:
        return diagnosis_of(place, _script(settings), output)
    except StayfiniteError as error:
        _tell(f"no diagnosis: {error}")
        return None


def _tell(line: str) -> None:
    print(f"stayfinite doctor: {line}", file=sys.stderr)


ALONE = ("--guard", "--strict", "--watch", "--apply", "--once", "--json")
NUMBERED = ("--minutes", "--patch")


def misplaced_flags(program: Sequence[str], its: Sequence[str]) -> str:
    """One line that names the doctor's flags among the program's arguments; empty if there are none.

    A flag whose name stands in quotes in the program's file is the program's own.

    Arguments:
        program: the words that name the program, such as `train.py` or `-m package.train`.
        its: the arguments after it.
    """
    text = _text_of(program[-1])
    names: list[str] = []
    words: list[str] = []
    before_separator = its[: its.index("--")] if "--" in its else its
    for at, word in enumerate(before_separator):
        name, equals, _ = word.partition("=")
        if name in names or name not in (*ALONE, *NUMBERED) or f'"{name}"' in text or f"'{name}'" in text:
            continue
        names.append(name)
        words += before_separator[at : at + 1 + (name in NUMBERED and not equals)]
    if not names:
        return ""
    passed, put = ("was passed", "it") if len(names) == 1 else ("were passed", "them")
    return (
        f"{' and '.join(names)} {passed} to {program[-1]}. "
        f"For doctor, put {put} first: {shlex.join(['stayfinite', 'doctor', *words, *program])}"
    )


def _text_of(program: str) -> str:
    try:
        return Path(program).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
