"""A command of stayfinite that can open nothing outside the allowed roots, whatever the files in them name.

`python -m stayfinite.mcp.confined '{"roots": [...], "told": FD}' check train.yaml --json`
"""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
import sysconfig
from pathlib import Path
from typing import Any

WATCHED = ("open", "os.listdir", "os.scandir")
"""What Python announces before it opens a file or a folder, with the path first."""
HARMLESS = (os.devnull, f"/proc/{os.getpid()}/maps")
"""Read by torch when it is loaded; says nothing of anybody's files."""
PACKAGES = ("site-packages", "dist-packages")
CODE = (".py", ".pyc", ".so", ".pyd", ".zip")
UNTOLD = ("pyproject.toml", "stayfinite.toml")
"""Looked for in every folder above: not what a file of the roots names."""
MOST_TOLD = 20


def confine(roots: list[str]) -> list[str]:
    """Let this process open nothing outside the roots and Python's own folders; returns the list of what is refused."""
    whole, code = _own_folders()
    whole = (*(os.path.realpath(root) for root in roots), *whole)
    told: list[str] = []

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event not in WATCHED or not isinstance(given[0], str | bytes | os.PathLike):
            return  # a number is a file that is open already
        path = os.path.realpath(os.fsdecode(given[0]))
        if path in HARMLESS or _under(path, whole):
            return
        if _under(path, code) and (event != "open" or path.endswith(CODE)):
            return
        if event == "open" and isinstance(given[2], int) and given[2] & os.O_EXCL:
            return  # a temporary file: new, so there is nothing to read in it
        if event == "open" and path not in told and not path.endswith(UNTOLD) and len(told) < MOST_TOLD:
            told.append(path)
        raise PermissionError(errno.EACCES, "outside the allowed roots", path)

    sys.addaudithook(hook)
    return told


def _own_folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where Python and its packages lie: folders that may be read whole, and those of which code alone may be."""
    whole = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    whole.add(str(Path(__file__).parents[1]))
    whole |= {each for each in sys.path if Path(each).name in PACKAGES}
    folders = ({os.path.realpath(each) for each in every if each} for every in (whole, sys.path))
    first, second = (tuple(sorted(every)) for every in folders)
    return first, second


def _under(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def main() -> None:
    """Run the command that the arguments name, and tell what it was refused."""
    settings = json.loads(sys.argv.pop(1))
    told = confine(settings["roots"])
    try:
        runpy.run_module("stayfinite", run_name="__main__", alter_sys=True)
    finally:
        os.write(settings["told"], json.dumps(told).encode())


if __name__ == "__main__":
    main()
