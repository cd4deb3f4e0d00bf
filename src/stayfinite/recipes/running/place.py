"""Where a program computes, and in which precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch

from stayfinite.core.policy import Precision
from stayfinite.errors import UsageError


def choose_device(asked: str) -> torch.device:
    """The device that was asked for; `auto` is CUDA where there is one.

    Raises:
        UsageError: there is no such device here.
    """
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(asked)
    except RuntimeError as error:
        raise UsageError(f"--device {asked}: there is no such kind of device", fix="--device cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device {asked}: there is no CUDA device here", fix="--device cpu")
    return device


def choose_precision(asked: str, device: torch.device, say: Callable[[str], None]) -> Precision:
    """What to compute in; `auto` is bf16 where the card computes in it, else fp32."""
    if asked != "auto":
        return cast(Precision, asked)
    chosen: Precision = "fp32"
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        chosen = "bf16"
    say(f"computing in {chosen} on {device}")
    return chosen
