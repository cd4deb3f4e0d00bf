"""Parse a device name."""

from __future__ import annotations

import torch

from stayfinite.errors import UsageError


def named_device(asked: str) -> torch.device:
    """Device for `--device`.

    Raises:
        UsageError: no such device here.
    """
    try:
        device = torch.device(asked)
    except RuntimeError as error:
        raise UsageError(f"--device {asked}: unknown device", fix="cpu, cuda or cuda:1") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device {asked}: no CUDA device found", fix="--device cpu")
    return device
