"""The environment of a process that imports the tests' own modules, as pytest's `pythonpath` gives it to the tests."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def environment() -> dict[str, str]:
    """This process's, with the tests on the path and as many threads, on which the last bit of a sum depends."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(torch.get_num_threads())}
