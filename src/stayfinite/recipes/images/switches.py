"""Switches of torch that hold for one training and are put back afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from stayfinite.errors import BadStep


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Within, every operator gives the same bits each time, or says that it cannot."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


@contextmanager
def anomalies(wanted: bool, step: Callable[[], int]) -> Iterator[None]:
    """Within, backward stops at the first operator that makes a NaN; torch prints where it was called.

    Raises:
        BadStep: it did.
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
