"""``stayfinite doctor train.py [ARGS...]``: run a program as it is, watch it train, prove what is wrong."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from stayfinite.errors import StayfiniteError

if TYPE_CHECKING:
    from stayfinite.doctor.session import Seen, Session
    from stayfinite.integrations.attaching import Attached

VALUED = ("--minutes", "--patch", "--instead", "--instead-of", "--second-run", "-m")
"""Flags that are followed by a value."""
NOT_TRAINED = "the program ended without training: no backward pass was seen"
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
LEAST_SURE = 0.5
"""Below this confidence what a text says is not told."""


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Run a training program as it is, watch it from outside, and say what is wrong with it. What follows the program
    belongs to the program.
    """

    script: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROGRAM")]
    """The script, notebook, or with -m the module; all words after it are its own."""

    module: Annotated[bool, tyro.conf.arg(aliases=["-m"])] = False
    """The program is a module, as in python -m."""

    guard: bool = False
    """Refuse bad steps in place. Without it every step is taken as ever."""

    strict: bool = False
    """Stop the program at its first bad step."""

    watch: bool = False
    """Only observe: the default."""

    minutes: float | None = None
    """Stop the program after so many minutes, and say what was seen until then."""

    patch: Path | None = None
    """Write a unified diff of the fix to this file."""

    apply: bool = False
    """Apply the patch to the program's file, once it is verified."""

    instead: Path | None = None
    """Run this file's text in the place of the program's: how a patched copy is tried."""

    instead_of: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The file whose text `--instead` replaces, where it is a module that the program imports."""

    once: bool = False
    """Never run the program a second time to explain a bad step."""

    second_run: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Run up to the bad step that the plan in this folder names: how a bad step is explained by a second run."""

    json: bool = False
    """Print the diagnosis as JSON and nothing else on standard output; the program's own goes to standard error."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; the program's exit code where it has failed, else 0 clean, 1 with findings, 2 on wrong use."""
    own, its = _parted(arguments)
    settings = tyro.cli(Doctor, args=own, prog="stayfinite doctor")
    wrong = _wrong_use(settings)
    if wrong:
        print(f"stayfinite doctor: {wrong}", file=sys.stderr)
        return 2
    if settings.second_run is not None:
        return _run_to_the_bad_step(settings, its)
    from stayfinite.core.policy import Policy
    from stayfinite.doctor.session import Session
    from stayfinite.integrations.attaching import attached
    from stayfinite.integrations.scripts import kept_output

    first = os.environ.get("RANK", "0") == "0"
    if first:
        _tell(f"watching {settings.script}{' and refusing bad steps' if settings.guard else ''}")
    session = Session(guard=settings.guard, strict=settings.strict)
    with tempfile.TemporaryDirectory(prefix="stayfinite-doctor-") as folder:
        output = Path(folder) / "output.log"
        policy = Policy() if settings.guard else Policy.watch()
        with (
            kept_output(output, to_stderr=settings.json, hear=session.printed),
            attached(policy, _tell) as found,
            session.watching(),
            _Limit(settings.minutes, session),
        ):
            session.stand_aside = lambda: bool(found.guards or found.own)
            code = _run_program(settings, its)
        if not first:
            from stayfinite.doctor.ranks import leave_word

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
    if settings.json:
        print(json.dumps(said, indent=1, ensure_ascii=False))
    elif found.guards or found.own:
        from stayfinite.report.diagnosis import show_diagnosis
        from stayfinite.report.standard_output import StandardOutput

        show_diagnosis(said, StandardOutput())
    else:
        from stayfinite.report.doctor import show_seen
        from stayfinite.report.standard_output import StandardOutput

        show_seen(said, StandardOutput())
    return code or int(said["verdict"] == "sick")


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our words up to the program, and the program's own after it."""
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


def _wrong_use(settings: Doctor) -> str:
    if settings.apply and settings.patch is None:
        return "--apply needs --patch FILE: the diff is written first"
    if settings.minutes is not None and not settings.minutes > 0:
        return f"--minutes must be above 0, not {settings.minutes:g}"
    if settings.module and settings.script in LAUNCHERS:
        return "start the doctor inside: torchrun --nproc-per-node 2 --no-python stayfinite doctor train.py"
    if settings.module:
        from importlib.util import find_spec

        try:
            found = find_spec(settings.script) is not None
        except (ImportError, ValueError):
            found = False
        return "" if found or _is_local_module(settings.script) else f"there is no module {settings.script!r}"
    path = Path(settings.script)
    if path.is_dir():
        return f"{settings.script!r} is a directory: give the script in it"
    return "" if path.is_file() else f"there is no script {settings.script!r}"


def _is_local_module(name: str) -> bool:
    place = Path(*name.split("."))
    return place.with_suffix(".py").is_file() or place.is_dir()


def _run_program(settings: Doctor, its: list[str]) -> int:
    from stayfinite.doctor.frames import NOTEBOOKS
    from stayfinite.integrations.other_text import imported_as
    from stayfinite.integrations.scripts import run_module, run_script, text_of_notebook

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
    """Start this process anew with a hash seed, if it has none: a second run walks through sets in the same order."""
    if "PYTHONHASHSEED" not in os.environ and os.name == "posix":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class _Limit:
    """Within, the program is ended when its time is over."""

    def __init__(self, minutes: float | None, session: Session) -> None:
        self._seconds, self._session = None if minutes is None else 60 * minutes, session
        self.before: Any = None

    def __enter__(self) -> None:
        import signal

        if self._seconds is None or not hasattr(signal, "SIGALRM"):
            return
        from stayfinite.doctor.stopping import ProgramStopped

        def over(*_: Any) -> None:
            self._session.watcher.steps.time_is_up = True
            raise ProgramStopped("time")

        self.before = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: Any) -> None:
        import signal

        if self._seconds is not None and hasattr(signal, "SIGALRM"):
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)


def _of_a_loop(session: Session, output: Path, settings: Doctor, code: int, its: list[str]) -> dict[str, Any] | None:
    """What was seen of a program's own loop, and what its text says where nothing was seen."""
    from stayfinite.doctor.judges.course import stands_still
    from stayfinite.doctor.session import plain

    plan = None if settings.once or settings.instead else session.needs_second_run()
    if plan is not None and os.environ.get("WORLD_SIZE", "1") == "1":
        from stayfinite.doctor.second_run.starting import run_again

        _tell(f"running it again up to step {plan.step}, to see where that goes wrong")
        session.learn(run_again(plan, _words(settings, its), session.watcher.program.seconds))
    seen = session.conclude(examine=code == 0)
    said = plain(seen)
    program = seen.program
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        said["findings"] = _with_other_ranks(said["findings"], hurry=code != 0)
    if session.watcher.steps.time_is_up:
        said["ended"] = f"stopped after {settings.minutes:g} minutes" + (
            "" if program.trains else "; no backward pass was seen until then"
        )
    elif settings.strict and program.bad is not None:
        said["ended"] = f"stopped at its first bad step, {program.bad.step}"
    elif not program.trains:
        said["ended"] = NOT_TRAINED if code == 0 else f"the program ended with exit code {code} before it trained"
    elif code:
        said["ended"] = f"the program ended with exit code {code} at step {program.steps}"
    crashed = code != 0 or not program.trains
    said["findings"] += _from_text(output, settings, seen, crashed=crashed)
    loud = [each for each in said["findings"] if each["severity"] != "info"]
    still = not loud and stands_still(program)
    if still and not said.get("ended"):
        said["ended"] = "the loss stands still, and no cause was found"
    said["verdict"] = "sick" if loud else "healthy" if program.steps >= 2 and code == 0 and not still else "unknown"
    said["losses"] = _losses(seen)
    if loud and settings.instead is None and settings.patch is not None:
        said["patch"] = _patched(seen, settings, its, code)
    return said


def _with_other_ranks(findings: list[dict[str, Any]], *, hurry: bool) -> list[dict[str, Any]]:
    """What other ranks have proved stands before what rank 0 only saw."""
    from stayfinite.doctor.ranks import words_of_others
    from stayfinite.doctor.told import PROVED

    words = words_of_others(2.0) if hurry else words_of_others()
    if findings and findings[0]["known_by"] == PROVED:
        return findings
    known: set[str] = set()
    proved: list[dict[str, Any]] = []
    for rank, theirs in words.items():
        for each in theirs:
            if each["cause"] not in known:
                known.add(each["cause"])
                proved.append(each | {"evidence": [*each["evidence"], f"Seen on rank {rank}."]})
    return [*proved, *(each for each in findings if not (proved and each["cause"] == "nan-loss"))]


def _losses(seen: Seen) -> list[float]:
    from stayfinite.doctor.judges.course import ends

    course = seen.program.main_loss()
    return list(ends(course)) if len(course.finite) else []


def _patched(seen: Seen, settings: Doctor, its: list[str], code: int) -> dict[str, Any] | None:
    from stayfinite.doctor.patching.trying import NoPatch, make_patch

    assert settings.patch is not None
    script = None if settings.module else Path(settings.script)
    made = make_patch(seen, script, _words(settings, its), code)
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


def _from_text(output: Path, settings: Doctor, seen: Seen, *, crashed: bool) -> list[dict[str, Any]]:
    """What the printed lines and the script say; only where the program failed or was not seen to train."""
    if not crashed and seen.program.steps >= 2:
        return []
    from stayfinite.diagnosis.diagnose import diagnose
    from stayfinite.doctor.told import READ

    try:
        paths = [output] if settings.module else [output, Path(settings.script)]
        found = diagnose(paths[0], *paths[1:])
    except StayfiniteError:
        return []
    known = {each.finding.cause for each in seen.findings}
    written = json.dumps([each.to_json() for each in found.findings if each.cause not in known])
    # The file is gone by then.
    written = written.replace(json.dumps(str(output))[1:-1], "what it printed")
    return [
        each | {"known_by": READ, "place": ["", 0], "evidence": [_shortened(line) for line in each["evidence"]]}
        for each in json.loads(written)
        if each["confidence"] >= LEAST_SURE and each["severity"] != "info"
    ]


def _shortened(evidence: str) -> str:
    """Of a traceback, where it stands and its last line."""
    before, traced, after = evidence.partition("Traceback (most recent call last)")
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    return f"{before}{lines[-1]}" if traced and lines else evidence


def _of_a_framework(found: Attached, output: Path, settings: Doctor) -> dict[str, Any] | None:
    from stayfinite.diagnosis.diagnose import diagnose

    # What a guard has written is the better record; of a program without one there is what it printed.
    paths = [*found.run_dirs] or [output]
    try:
        more = [] if settings.module else [Path(settings.script)]
        said = json.dumps(diagnose(paths[-1], *more).to_json())
        read: dict[str, Any] = json.loads(said.replace(json.dumps(str(output))[1:-1], "what it printed"))
    except StayfiniteError as error:
        _tell(f"no diagnosis: {error}")
        return None
    return read


def _tell(line: str) -> None:
    print(f"stayfinite doctor: {line}", file=sys.stderr)
