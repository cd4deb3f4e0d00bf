"""Where a program computes, and in which precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch

from stayfinite.core.policy import Precision
from stayfinite.measure.device import named_device

PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
PlannedPrecision = str
"""One of these, `plan`, or the file of a precision plan."""


def choose_device(asked: str) -> torch.device:
    """The device that was asked for; `auto` is CUDA where there is one.

    Raises:
        UsageError: no such device here.
    """
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return named_device(asked)


def choose_precision(
    asked: str, device: torch.device, say: Callable[[str], None], overflow: Callable[[], str] = lambda: "not measured"
) -> Precision:
    """What to compute in. `auto` is bf16 where the card computes in it, fp16 where it is proved to hold, else fp32.

    Arguments:
        overflow: measures a step in fp16 and says what would go wrong, nothing where it holds; asked only for a card
            without bf16. A CPU computes in fp32: half precision is slower there.
    """
    if asked != "auto":
        return cast(Precision, asked)
    if device.type != "cuda":
        say(f"computing in fp32 on {device}")
        return "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        say(f"computing in bf16 on {torch.cuda.get_device_name(device)}")
        return "bf16"
    why = overflow()
    name = torch.cuda.get_device_name(device)
    if why:
        say(f"computing in fp32 on {name}: no bf16, and fp16 would overflow ({why})")
        return "fp32"
    say(f"computing in fp16 on {name}: no bf16, and a measured step fits fp16")
    return "fp16"
