"""Run a stayfinite command that cannot open files outside the allowed roots, whatever the files in them name.

`python -m stayfinite.mcp.confined '{"roots": [...], "told": FD}' check train.yaml --json`
"""

import errno
import json
import os
import runpy
import sys
import sysconfig
from pathlib import Path
from typing import Any

WATCHED = ("open", "os.listdir", "os.scandir")
"""Audit events for opening a file or folder, with the path first."""
HARMLESS = (os.devnull, f"/proc/{os.getpid()}/maps")
"""Read by torch on import."""
PACKAGES = ("site-packages", "dist-packages")
CODE = (".py", ".pyc", ".so", ".pyd", ".zip")
UNTOLD = ("pyproject.toml", "stayfinite.toml")
"""Searched in every parent folder; not named by a file in the roots."""
MOST_TOLD = 20


def confine(roots: list[str]) -> list[str]:
    """Restrict this process to the roots and Python's own folders; return the live list of refused paths."""
    whole, code = _own_folders()
    whole = (*(os.path.realpath(root) for root in roots), *whole)
    told: list[str] = []

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event not in WATCHED or not isinstance(given[0], str | bytes | os.PathLike):
            return  # a file descriptor that is already open
        path = os.path.realpath(os.fsdecode(given[0]))
        if path in HARMLESS or _under(path, whole):
            return
        if _under(path, code) and (event != "open" or path.endswith(CODE)):
            return
        if event == "open" and isinstance(given[2], int) and given[2] & os.O_EXCL:
            return  # a new temporary file
        if event == "open" and path not in told and not path.endswith(UNTOLD) and len(told) < MOST_TOLD:
            told.append(path)
        raise PermissionError(errno.EACCES, "outside the allowed roots", path)

    sys.addaudithook(hook)
    return told


def _own_folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders of Python and its packages: those readable as a whole, and those readable only for code."""
    whole = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    whole.add(str(Path(__file__).parents[1]))
    whole |= {each for each in sys.path if Path(each).name in PACKAGES}
    folders = ({os.path.realpath(each) for each in every if each} for every in (whole, sys.path))
    first, second = (tuple(sorted(every)) for every in folders)
    return first, second


def _under(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def main() -> None:
    """Run the command in the arguments, and report what was refused."""
    settings = json.loads(sys.argv.pop(1))
    told = confine(settings["roots"])
    try:
        runpy.run_module("stayfinite", run_name="__main__", alter_sys=True)
    finally:
        os.write(settings["told"], json.dumps(told).encode())


if __name__ == "__main__":
    main()
