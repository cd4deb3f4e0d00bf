"""Played on a stage: a script as ``python SCRIPT WORD...`` runs it, after a directory was copied, if one is named."""

from __future__ import annotations

import runpy
import shutil
import sys


def main(source: str, copy: str, script: str, *words: str) -> None:
    if source:
        shutil.copytree(source, copy)
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")
