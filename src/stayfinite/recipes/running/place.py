"""Choose device and precision."""

from collections.abc import Callable
from typing import Literal, cast

import torch

from stayfinite.core.policy import Precision
from stayfinite.measure.device import named_device

PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
PlannedPrecision = str
"""One of these, `plan`, or a plan file."""


def choose_device(asked: str) -> torch.device:
    """The requested device; `auto` is CUDA if available. Raises UsageError if there is no such device."""
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return named_device(asked)


def choose_precision(
    asked: str, device: torch.device, say: Callable[[str], None], overflow: Callable[[], str] = lambda: "not measured"
) -> Precision:
    """The precision. `auto` is bf16 if the card supports it, fp16 if proved safe, else fp32.

    Arguments:
        overflow: measures a step in fp16 and returns the problem, empty if none. Called only on a card without bf16.
            CPUs use fp32: half precision is slower there.
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
