"""Host and device of a rank, by names that survive a restart."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True, slots=True)
class Machine:
    """Host and device of one rank."""

    host: str
    device: str
    """With model name and start of its UUID, because `cuda:0` may be another card after a restart."""

    @classmethod
    def of(cls, device: torch.device) -> Machine:
        """Machine of this process."""
        return cls(platform.node() or "unknown host", _named(device))

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.host} {self.device}"


def _named(device: torch.device) -> str:
    if device.type != "cuda":
        return str(device)
    about = torch.cuda.get_device_properties(device)
    number = str(getattr(about, "uuid", ""))[:8]
    return f"cuda:{device.index or 0} ({about.name}{', ' if number else ''}{number})"
