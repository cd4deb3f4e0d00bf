"""``stayfinite doctor script.py [ARGS...]``: run a training script as it is, guarded from outside, and diagnose it."""

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
    from stayfinite.integrations.attaching import Attached

NOTHING = (
    "nothing was attached: the script has built no Trainer of transformers or Lightning, and prepared no model and "
    "optimizer with accelerate. What it printed and its settings were read instead. In a loop of your own three lines "
    "do it: from stayfinite import Guard; guard = Guard(model, optimizer); guard.step(loss)"
)


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Run a training script as it is, with a guard attached to its Trainer from outside, and say at the end what was
    wrong. What follows the script belongs to the script.
    """

    script: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SCRIPT")]
    """The training script; all words after it are its own."""

    watch: bool = False
    """Only observe: every step is taken as without the guard."""

    json: bool = False
    """Print the diagnosis as JSON and nothing else on standard output; the script's own goes to standard error."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; the script's exit code where it has failed, else 0 clean, 1 with findings, 2 on wrong use."""
    own, its = _parted(arguments)
    settings = tyro.cli(Doctor, args=own, prog="stayfinite doctor")
    if not settings.script.is_file():
        print(f"stayfinite doctor: there is no script {str(settings.script)!r}", file=sys.stderr)
        return 2
    from stayfinite.core.policy import Policy
    from stayfinite.integrations.attaching import SEAMS, attached
    from stayfinite.integrations.scripts import kept_output, run_script

    first = os.environ.get("RANK", "0") == "0"
    if first:
        _tell(f"stands by, from outside, at {', '.join(map(str, SEAMS))}")
    with tempfile.TemporaryDirectory(prefix="stayfinite-doctor-") as folder:
        output = Path(folder) / "output.log"
        policy = Policy.watch() if settings.watch else Policy()
        with kept_output(output, to_stderr=settings.json), attached(policy, _tell) as found:
            code = run_script(settings.script, its)
        if not first:
            return code
        _tell("everything was taken off again" if found.guards or found.own else NOTHING)
        said = _diagnosis(found, output, settings.script)
    if said is None:
        return code or 2
    if settings.json:
        runs = [str(place) for place in found.run_dirs]
        said |= {"exit_code": code, "attached": len(found.guards), "runs": runs}
        print(json.dumps(said, indent=1, ensure_ascii=False))
    else:
        from stayfinite.report.diagnosis import show_diagnosis
        from stayfinite.report.standard_output import StandardOutput

        show_diagnosis(said, StandardOutput())
    return code or int(said["verdict"] == "sick")


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our words up to the script, and the script's own after it."""
    for at, word in enumerate(arguments):
        if not word.startswith("-"):
            return list(arguments[: at + 1]), list(arguments[at + 1 :])
    return list(arguments), []


def _diagnosis(found: Attached, output: Path, script: Path) -> dict[str, Any] | None:
    from stayfinite.diagnosis.diagnose import diagnose

    # What a guard has written is the better record; of a script without one there is what it printed.
    paths = [*found.run_dirs] or [output]
    try:
        said = json.dumps(diagnose(paths[-1], script).to_json())
        # The file is gone by now.
        read: dict[str, Any] = json.loads(said.replace(json.dumps(str(output))[1:-1], "what it printed"))
    except StayfiniteError as error:
        _tell(f"no diagnosis: {error}")
        return None
    return read


def _tell(line: str) -> None:
    print(f"stayfinite doctor: {line}", file=sys.stderr)
