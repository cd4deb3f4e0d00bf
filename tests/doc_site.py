"""Building the site of the docs as `make site` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from doc_blocks import ROOT


def build_site(folder: Path) -> Path:
    """Build it, strictly: a warning is an error."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder
