"""Torch switches for one training, restored afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from stayfinite.errors import BadStep


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Use deterministic operators, or raise where there is none."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


@contextmanager
def anomalies(wanted: bool, step: Callable[[], int]) -> Iterator[None]:
    """Stop backward at the first operator that makes a NaN; torch prints its forward call.

    Raises:
        BadStep: a NaN was found.
    """
    with torch.autograd.set_detect_anomaly(wanted):
        try:
            yield
        except RuntimeError as error:
            if not wanted or "returned nan values" not in str(error):
                raise
            raise BadStep(
                f"--detect-anomaly: {error} The warning above shows the forward lines",
                step=step() + 1,
                code="anomaly",
                fix="without --detect-anomaly the step is refused and explained, and training continues",
            ) from error
