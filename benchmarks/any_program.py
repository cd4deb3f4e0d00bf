"""``stayfinite doctor`` on plain programs of many hands: faults found, named, patched; healthy ones left in peace.

python benchmarks/any_program.py                  all programs, two at a time
python benchmarks/any_program.py --only no-zero   those whose name holds this
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import stayfinite.doctor.session
import stayfinite.inspection.preflight  # noqa: F401
from benchmarks.doctored.faults import FAULTS, HEALTHY, Planted
from stayfinite.cli import doctor
from stayfinite.doctor.patching import trying

PROGRAMS = Path(__file__).parent / "doctored" / "programs"
LONGEST = 240.0
"""Seconds for one program."""
GOALS = {"detected": 0.95, "top cause right": 0.85, "patch verified": 0.60}


@dataclass
class Result:
    """What the doctor said of one program."""

    program: Planted
    causes: list[str] = field(default_factory=list)
    severities: list[str] = field(default_factory=list)
    known_by: str = ""
    patched: bool = False
    seconds: float = 0.0
    error: str = ""

    @property
    def alarmed(self) -> bool:
        """Whether anything but an info was told."""
        return any(severity != "info" for severity in self.severities)

    @property
    def right(self) -> bool:
        """Whether the first cause is the planted one."""
        return bool(self.causes) and self.causes[0] in self.program.causes

    @property
    def found(self) -> bool:
        """Whether the planted cause is among those told."""
        return bool(set(self.causes) & set(self.program.causes))


def text_of(program: Planted) -> str:
    """The program, changed as planned."""
    text = (PROGRAMS / f"{program.base}.py").read_text()
    for old, new in program.edits:
        if old not in text:
            raise SystemExit(f"{program.name}: {old!r} is not in {program.base}.py")
        text = text.replace(old, new)
    compile(text, program.name, "exec")
    return text


def examine(program: Planted, *, patch: bool) -> Result:
    """Run the doctor on one program, in a process of its own."""
    result = Result(program)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(text_of(program))
        flags = ["--patch", str(Path(folder) / "fix.diff")] if patch else []
        start = time.monotonic()
        said, error = _in_a_fork([*flags, "--json", str(script)], Path(folder))
        result.seconds = time.monotonic() - start
        if said is None:
            result.error = error
            return result
        result.causes = [each["cause"] for each in said["findings"]]
        result.severities = [each["severity"] for each in said["findings"]]
        result.known_by = said["findings"][0]["known_by"] if said["findings"] else ""
        result.patched = bool(said.get("patch") and said["patch"]["verified"])
        result.error = "; ".join(said.get("own_troubles", [])) + ("" if said["replayed"] else " (not replayed)")
    return result


def _try_in_a_fork(
    file: Path,  # noqa: ARG001
    text: str,
    words: list[str],
    seconds: float,  # noqa: ARG001
    *,
    imported: bool,
) -> dict[str, Any] | None:
    """A patched copy, tried without the start of another process."""
    assert not imported  # every program here is one file
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "patched.py"
        copy.write_text(text)
        return _in_a_fork(["--json", "--instead", str(copy), *words], Path(folder))[0]


def _in_a_fork(words: list[str], folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The doctor's answer. A fork of this process, which has torch loaded and one thread, spares its start."""
    out, err = folder / "out.json", folder / "err.txt"
    child = os.fork()
    if child == 0:
        try:
            sys.stdout, sys.stderr = out.open("w"), err.open("w")
            trying._run = _try_in_a_fork
            code = doctor.run(words)
            sys.stdout.flush()
        except BaseException as error:  # also SystemExit: the child must end here
            err.open("a").write(f"{type(error).__name__}: {error}")
            code = 99
        os._exit(code if isinstance(code, int) and 0 <= code < 256 else 1)
    deadline = time.monotonic() + LONGEST
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None, f"over {LONGEST:.0f} s"
        time.sleep(0.05)
    try:
        return json.loads(out.read_text()), ""
    except (OSError, ValueError):
        return None, (err.read_text().strip().splitlines() or ["no answer"])[-1]


def mark_of(result: Result) -> str:
    """One word."""
    if not result.program.causes:
        return "ALARM" if result.alarmed else "quiet"
    return "right" if result.right else "found" if result.found else "other" if result.alarmed else "MISSED"


def line_of(result: Result, mark: str) -> str:
    """A program, what was said of it, and how it is known."""
    patch = " patch verified" if result.patched else ""
    causes = ", ".join(result.causes[:3])
    name, seconds = result.program.name, result.seconds
    return f"{mark:7}{name:28}{seconds:6.1f} s  {causes}  {result.known_by}{patch}  {result.error}".rstrip()


def main() -> int:
    """Run all, print the table; 0 when every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs whose name holds this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-patch", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="print the totals only")
    given = parser.parse_args()
    bases = sorted(path.stem for path in PROGRAMS.glob("*.py"))
    healthy = [*(Planted(name, name, ()) for name in bases), *HEALTHY]
    chosen = [each for each in (*FAULTS, *healthy) if given.only in each.name]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = time.monotonic()
    results: list[Result] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(examine, each, patch=bool(each.causes) and not given.no_patch) for each in chosen]
        for future in as_completed(waiting):
            results.append(future.result())
            mark = mark_of(results[-1])
            if not given.quiet or mark in ("MISSED", "ALARM"):
                print(line_of(results[-1], mark), flush=True)
    faulty = [each for each in results if each.program.causes]
    sound = [each for each in results if not each.program.causes]
    rates = {
        "detected": _share(sum(each.alarmed for each in faulty), len(faulty)),
        "top cause right": _share(sum(each.right for each in faulty), len(faulty)),
        "patch verified": _share(sum(each.patched for each in faulty), len(faulty)),
    }
    print()
    for name, rate in rates.items():
        print(f"{name:18}{rate:7.1%}  of {len(faulty)} faulty programs (goal {GOALS[name]:.0%})")
    alarms = sum(each.alarmed for each in sound)
    print(f"{'false alarms':18}{alarms:7}  of {len(sound)} healthy programs (goal 0)")
    print(f"{'time':18}{time.monotonic() - start:7.0f} s")
    met = all(rates[name] >= goal for name, goal in GOALS.items()) and not alarms
    return 0 if met else 1


def _share(count: int, of: int) -> float:
    return count / of if of else 1.0


if __name__ == "__main__":
    sys.exit(main())
