"""stayfinite: ``doctor`` for programs, ``diagnose`` for logs, a ``Guard`` that knows the forward pass for steps."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.failures.adapters.running import caught
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer
from benchmarks.failures.logs.reading import LogCase
from benchmarks.failures.naming import named_by_error
from benchmarks.failures.processes import LONGEST
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.steps.record import Training


class Stayfinite(Tool):
    """Anything but an info is an alarm."""

    name = "**stayfinite**"
    about = "`stayfinite doctor train.py`, `stayfinite diagnose log.txt config.txt`, `Guard(..., forward=)`"
    needs = ("stayfinite",)

    def prepare(self) -> None:
        """Load all of it."""
        import stayfinite.autopsy.autopsy
        import stayfinite.cli.doctor
        import stayfinite.diagnosis
        import stayfinite.doctor.session
        import stayfinite.guard
        import stayfinite.inspection.preflight  # noqa: F401

    def program(self, program: Program, folder: Path) -> Answer:
        """``stayfinite doctor --patch fix.diff --json train.py``."""
        from stayfinite.doctor.patching import trying

        trying._run = _try_here
        script = folder / "train.py"
        script.write_text(program.text, encoding="utf-8")
        said = _doctor(["--patch", str(folder / "fix.diff"), "--json", str(script)])
        causes = [each["cause"] for each in said["findings"]]
        return Answer(
            alarmed=any(each["severity"] != "info" for each in said["findings"]),
            first=tuple(causes[:1]),
            others=tuple(causes[1:]),
            words="; ".join([said["verdict"], *said.get("own_troubles", [])]),
            fixed=bool(said.get("patch") and said["patch"]["verified"]),
        )

    def log(self, case: LogCase, folder: Path) -> Answer:
        """``stayfinite diagnose log.txt config.txt``."""
        from stayfinite import diagnose

        said = diagnose(*case.write(folder))
        cause = None if said.cause is None else said.cause.cause
        causes = [each.cause for each in said.findings]
        return Answer(
            alarmed=cause is not None or said.verdict == "sick",
            first=tuple(causes[:1]),
            others=tuple(causes[1:]),
            words=said.verdict,
        )

    def step(self, training: Training, folder: Path) -> Answer:
        """A guard round every step, asked at the end what was wrong."""
        from stayfinite import Guard, diagnose

        alarms: list[str] = []

        def train() -> None:
            scaler = torch.amp.GradScaler("cpu", init_scale=training.scale) if training.scale != 1.0 else None
            guard = Guard(
                training.model, training.optimizer, scaler=scaler, forward=training.loss, run_dir=folder / "run",
                console=_Silence(),
            )  # fmt: skip
            with guard:
                for batch in training.batches:
                    guard.step(guard.forward(batch))
                guard.flush()
                alarms.extend(
                    str(each.code) for each in guard.decisions if each.notable and each.code != "scale-search"
                )

        error = caught(train)
        proved = [json.loads(path.read_text())["cause"] for path in sorted(folder.glob("run/incidents/*/autopsy.json"))]
        said = diagnose(folder / "run") if (folder / "run").is_dir() else None
        told = [said.cause.cause] if said is not None and said.cause is not None else []
        causes = [each for each in dict.fromkeys([*proved, *told, *named_by_error(error)]) if each]
        return Answer(
            alarmed=bool(alarms or error or causes),
            first=tuple(causes[:1]),
            others=tuple(causes[1:]),
            words="; ".join(filter(None, [*dict.fromkeys(alarms), error[:160]])),
        )


class _Silence:
    """A console that nobody reads."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Nothing."""


def _doctor(words: list[str]) -> dict[str, Any]:
    """The doctor's answer, in this process."""
    from stayfinite.cli import doctor

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        doctor.run(words)
    said: dict[str, Any] = json.loads(printed.getvalue())
    return said


def _try_here(
    file: Path,  # noqa: ARG001
    text: str,
    words: list[str],
    seconds: float,  # noqa: ARG001
    *,
    imported: bool,
) -> dict[str, Any] | None:
    """A patched copy, tried in a fork: without the start of another process."""
    from benchmarks.failures.processes import in_a_fork

    assert not imported  # every program here is one file

    def attempt(folder: Path) -> Answer:
        copy = folder / "patched.py"
        copy.write_text(text, encoding="utf-8")
        return Answer(alarmed=False, words=json.dumps(_doctor(["--json", "--instead", str(copy), *words])))

    answer, _, _ = in_a_fork(attempt, LONGEST / 2)
    return None if answer is None else json.loads(answer.words)
