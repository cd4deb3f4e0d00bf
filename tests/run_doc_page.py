"""``run_doc_page.py PAGE``: runs the blocks of a page in order, in one process and the current directory.

Ends with 1 at the first block that fails, or whose shown output was not printed, and says where.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import doc_stages
from doc_blocks import PYTHON, Block, blocks_of

SHELL = """set -uo pipefail
fail() { [[ $2 == stayfinite* && $1 == 1 ]] || { echo "ended with $1: $2"; exit 99; }; }
trap 'fail $? "$BASH_COMMAND"' ERR
"""
"""A command that judges may end with 1, which means findings. Nothing else may end with anything but 0."""


def main(page: str) -> int:
    """Run a page."""
    os.environ["PATH"] = os.pathsep.join(
        [str(Path("bin").absolute()), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    sys.path.insert(0, str(Path.cwd()))
    stage = doc_stages.prepare(page)
    said = ""
    for block in blocks_of(page):
        if block.is_output:
            if missing := first_missing(block.code, said):
                print(f"{block.place}: was not printed: {missing}\n--- printed was\n{said}")
                return 1
        elif block.runs:
            failed, said = run(block, stage)
            if failed:
                print(f"{block.place}: {failed}\n--- printed was\n{said}")
                return 1
    return 0


def run(block: Block, stage: doc_stages.Stage) -> tuple[str, str]:
    """What went wrong with a block, if anything, and what it printed; one that begins with a file's name becomes it."""
    code = block.code
    for there, here in stage.places.items():
        code = code.replace(there, here)
    for words, change in stage.before.items():
        if words in code:
            change(stage.names)
    failed = ""
    with captured() as printed:
        if name := re.match(r"(?:#!.*\n)?# (\w+\.(?:py|sh))\b", code):
            Path(name[1]).write_text(code, encoding="utf-8")
            Path(name[1]).chmod(0o755)
        elif block.language in PYTHON:
            try:
                exec(compile("\n" * block.line + code, block.page, "exec"), stage.names)
            except BaseException:
                failed = traceback.format_exc()
        else:
            ended = subprocess.run(["bash", "-c", f"{SHELL}{code}\nexit 0"], stdin=subprocess.DEVNULL, check=False)
            failed = f"the shell ended with {ended.returncode}" if ended.returncode else ""
    return failed, printed[0]


@contextmanager
def captured() -> Iterator[list[str]]:
    """All that this process and its children print meanwhile."""
    printed: list[str] = []
    kept: list[Any] = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush(), sys.stderr.flush()
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        try:
            yield printed
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os.dup2(kept[0], 1), os.dup2(kept[1], 2)
            file.seek(0)
            printed.append(file.read().decode(errors="replace"))


def first_missing(shown: str, said: str) -> str:
    """The first line of a shown output that was not printed, in its order; `...` is anything, spaces do not count."""
    rest = "".join(said.split())
    for line in shown.splitlines():
        for piece in line.split("..."):
            found = rest.find("".join(piece.split()))
            if found < 0:
                return line
            rest = rest[found + len("".join(piece.split())) :]
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
