"""TrainCheck (OSDI '25): invariants learned from the healthy program, checked on the changed one.

Not run unless asked for: tracing takes about a hundred times the program's own time, learning invariants minutes more.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer
from benchmarks.failures.naming import INVARIANTS
from benchmarks.failures.programs.reading import Program


class TrainCheck(Tool):
    """Any violated invariant is an alarm. They are not ranked: any of them may name the cause."""

    name = "TrainCheck"
    about = "`traincheck-collect`, `-infer` on the healthy base; `traincheck-collect`, `-check` on the program"
    needs = ("traincheck",)
    default = False
    longest = 3600.0

    def program(self, program: Program, folder: Path) -> Answer:
        """Learn from the base, once for all that are made of it; check the program."""
        models = sorted(set(re.findall(r"(\w+)\.parameters\(\)", program.base_text)))
        key = hashlib.sha256(program.base_text.encode()).hexdigest()[:16]
        invariants = Path(tempfile.gettempdir()) / f"failures-traincheck-{key}.json"
        if not invariants.exists():
            self._collect(program.base_text, models, folder, "base")
            made = folder / "invariants.json"
            _run("infer_engine", ["-f", "base_trace", "-o", str(made)], folder)
            made.rename(invariants)
        self._collect(program.text, models, folder, "target", "--invariants", str(invariants))
        said = _run("checker", ["-f", "target_trace", "-i", str(invariants)], folder)
        count = re.search(r"Total failed invariants: (\d+)/(\d+)", said)
        if count is None:
            raise RuntimeError(said[-200:])
        failed = "\n".join(
            found
            for path in folder.glob("traincheck_checker_results*/*/failed.log")
            for found in re.findall(r'"text_description": "([^"]*)', path.read_text(encoding="utf-8"))
        )
        named = next((causes for pattern, causes in INVARIANTS if re.search(pattern, failed)), ())
        return Answer(alarmed=int(count[1]) > 0, first=named, words=f"{count[1]} of {count[2]} invariants violated")

    def _collect(self, text: str, models: list[str], folder: Path, name: str, *more: str) -> None:
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        words = ["--pyscript", f"{name}.py", "--models-to-track", *models, "--output-dir", f"{name}_trace", *more]
        _run("collect_trace", words, folder)


def _run(module: str, words: list[str], folder: Path) -> str:
    """One of its commands; what it printed."""
    code = f"from traincheck.{module} import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
