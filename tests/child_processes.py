"""The environment of a process that imports the tests' own modules, as pytest's `pythonpath` gives it to the tests."""

from __future__ import annotations

import os
from pathlib import Path


def environment() -> dict[str, str]:
    """With the tests on the path and one thread: the last bit of a sum depends on how many there are."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
