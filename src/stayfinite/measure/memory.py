"""Peak memory of the process."""

from __future__ import annotations

import sys

import torch


def memory_peaks() -> dict[str, int]:
    """Peak bytes by place: the process on the host, and each CUDA device in use."""
    peaks = {}
    try:
        import resource
    except ImportError:  # Windows
        pass
    else:
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peaks["host, the whole process"] = held if sys.platform == "darwin" else held << 10
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            if allocated := torch.cuda.max_memory_allocated(device):
                peaks[f"cuda:{device}, allocated"] = allocated
                peaks[f"cuda:{device}, reserved"] = torch.cuda.max_memory_reserved(device)
    return peaks
