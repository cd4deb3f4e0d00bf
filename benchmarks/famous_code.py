"""``stayfinite check`` on training scripts and configs of well-known repositories. They work, so it should be quiet.

    python benchmarks/famous_code.py DIRECTORY                 # a directory of checkouts, one per repository
    python benchmarks/famous_code.py DIRECTORY --list FILE     # the files named in FILE; written if missing
    python benchmarks/famous_code.py DIRECTORY --json FILE     # all findings

Other people's code is not part of this repository: clone what you want to check and name the directory. Promise: no
error and at most one warning per file. Files are read, never executed.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from stayfinite.errors import StayfiniteError
from stayfinite.inspection.files.inspecting import inspect_files

LONGEST = 20
"""Seconds per file."""

LOOPS = r"\.backward\(|Trainer\(|TrainingArguments\(|\.fit\("
TRAINS = {
    ".py": rf"{LOOPS}|(?:optimizer|opt|optim)\w*\.step\(|\b(?:lr|learning_rate)\s*=\s*\d",
    ".ipynb": LOOPS,
    ".yaml": r"(?m)^\s*-?\s*(?:lr\w*|learning_rate|optimizer|base_lr)\s*:",
    ".json": r"\"(?:lr|learning_rate|optimizer\w*)\"\s*:",
    ".toml": r"(?m)^\s*(?:lr|learning_rate|optimizer)\s*=",
    ".sh": r"--(?:lr|learning[_-]rate|fp16|bf16|num_train_epochs|max_train_steps)\b",
}
"""Patterns of files that train or configure training."""

NO_TRAINING = re.compile(
    r"(?:^|/)(?:tests?|results|docs?|node_modules|\.github)/|(?:^|/)(?:test_|conftest)", re.IGNORECASE
)


@dataclass
class Look:
    """Findings for one file."""

    file: str
    findings: list[dict[str, object]] = field(default_factory=list)
    crash: str = ""
    refused: str = ""
    seconds: float = 0.0

    @property
    def errors(self) -> int:
        """Number of errors."""
        return sum(each["severity"] == "error" for each in self.findings)

    @property
    def warnings(self) -> int:
        """Number of warnings."""
        return sum(each["severity"] == "warning" for each in self.findings)


def files_in(directory: Path) -> list[str]:
    """All files under a directory that train, or configure it."""
    found = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        sign = TRAINS.get({".yml": ".yaml"}.get(path.suffix, path.suffix))
        if sign is None or not path.is_file() or NO_TRAINING.search(name):
            continue
        if re.search(sign, path.read_text(encoding="utf-8", errors="replace")):
            found.append(name)
    return found


def look_at(directory: Path, file: str) -> Look:
    """Check one file, in at most `LONGEST` seconds."""
    look, start = Look(file), time.perf_counter()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST)
    try:
        look.findings = [each.to_json() for each in inspect_files([str(directory / file)]).findings]
    except StayfiniteError as error:
        look.refused = str(error)
    except Exception as error:
        look.crash = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    look.seconds = time.perf_counter() - start
    return look


def _too_long(_signum: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no answer within {LONGEST} s")


def table(looks: list[Look]) -> str:
    """One row per repository, and one for all."""
    groups: dict[str, list[Look]] = {}
    for look in looks:
        groups.setdefault(look.file.partition("/")[0].replace("+", "/"), []).append(look)
    rows = [_row(name, group) for name, group in sorted(groups.items())]
    head = "| repository | files | with an error | with two warnings or more | with one warning | crashes |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows, _row("all", looks)])


def _row(name: str, looks: list[Look]) -> str:
    error = sum(look.errors > 0 for look in looks)
    several = sum(look.warnings > 1 for look in looks)
    one = sum(look.warnings == 1 for look in looks)
    return f"| {name} | {len(looks)} | {error} | {several} | {one} | {sum(bool(look.crash) for look in looks)} |"


def main() -> int:
    """Print the table and violations of the promise; 0 if there are none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="checkouts, one directory a repository")
    parser.add_argument("--list", type=Path, help="the files to look at, one a line; written where there is none")
    parser.add_argument("--json", type=Path, help="write every finding here")
    arguments = parser.parse_args()
    if arguments.directory is None:
        print("no directory of checkouts was named; nothing was looked at")
        return 0
    if arguments.list is not None and arguments.list.exists():
        files = arguments.list.read_text().split("\n")
    else:
        files = files_in(arguments.directory)
        if arguments.list is not None:
            arguments.list.write_text("\n".join(files))
    looks = [look_at(arguments.directory, file) for file in files if file]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(look) for look in looks], indent=1))
    print(table(looks), end="\n\n")
    refused = sum(bool(look.refused) for look in looks)
    print(
        f"{refused} files were refused: no setting in them. Longest look: {max(look.seconds for look in looks):.1f} s."
    )
    said = Counter((str(each["severity"]), str(each["code"])) for look in looks for each in look.findings)
    print(", ".join(f"{severity} {code}: {count}" for (severity, code), count in said.most_common()), end="\n\n")
    against = [look for look in looks if look.errors or look.warnings > 1 or look.crash]
    for look in against:
        print(look.file, look.crash)
        for each in look.findings:
            if each["severity"] != "info":
                print(f"    {each['severity']} {each['code']} {each['evidence']}")
    return int(bool(against))


if __name__ == "__main__":
    sys.exit(main())
