"""Process-wide switches that a model may change: gradients, autocast, precision, determinism."""

from __future__ import annotations

from typing import Any

import torch

DEVICES = ("cpu", "cuda")


def capture_switches() -> dict[str, Any]:
    """Return their values."""
    mkldnn: Any = torch.backends.mkldnn
    return {
        "grad": torch.is_grad_enabled(),
        "autocast": {
            device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in DEVICES
        },
        "cache": torch.is_autocast_cache_enabled(),
        "default_dtype": torch.get_default_dtype(),
        "matmul": torch.get_float32_matmul_precision(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "benchmark": torch.backends.cudnn.benchmark,
        "mkldnn": bool(mkldnn.enabled),
    }


def restore_switches(switches: dict[str, Any]) -> None:
    """Set them to earlier values."""
    if capture_switches() == switches:
        return
    mkldnn: Any = torch.backends.mkldnn
    torch.set_grad_enabled(switches["grad"])
    for device, (enabled, dtype) in switches["autocast"].items():
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(switches["cache"])
    torch.set_default_dtype(switches["default_dtype"])
    torch.set_float32_matmul_precision(switches["matmul"])
    deterministic, only_warn = switches["deterministic"]
    torch.use_deterministic_algorithms(deterministic, warn_only=only_warn)
    torch.set_anomaly_enabled(*switches["anomaly"])
    torch.backends.cudnn.benchmark = switches["benchmark"]
    if bool(mkldnn.enabled) is not switches["mkldnn"]:
        mkldnn.enabled = switches["mkldnn"]
