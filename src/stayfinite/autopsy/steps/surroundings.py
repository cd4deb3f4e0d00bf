"""Environment of a step: versions, devices, modules, optimizer, settings. For people, not for re-runs."""

from __future__ import annotations

import platform
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.state.parts import plain_name, unwrapped

PACKAGES = ("stayfinite", "torch", "transformers", "accelerate", "peft", "lightning", "numpy")
"""Packages to record if loaded."""

MOST_MODULES = 2048
"""Modules listed one by one; the rest is only counted."""

OF_INTEREST = ("lr", "eps", "betas", "weight_decay", "momentum", "dampening", "nesterov", "amsgrad", "fused", "foreach")
"""Recorded settings of a parameter group."""


def versions() -> dict[str, str]:
    """Versions of python and loaded packages."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        if (package := sys.modules.get(name)) is not None:
            found[name] = str(getattr(package, "__version__", "unknown"))
    return found


def device_in_words(device: torch.device) -> str:
    """A device with its model name, if any."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def settings_in_force() -> dict[str, Any]:
    """Global settings that change what a kernel computes."""
    cuda = torch.backends.cuda
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "flash_attention": cuda.flash_sdp_enabled(),
        "efficient_attention": cuda.mem_efficient_sdp_enabled(),
        "math_attention": cuda.math_sdp_enabled(),
    }


def module_tree(model: nn.Module) -> dict[str, Any]:
    """All modules by path: type, mode, and the shapes of their own tensors."""
    modules = list(unwrapped(model).named_modules())
    return {
        "count": len(modules),
        "modules": [
            {
                "path": plain_name(path),
                "type": type(module).__name__,
                "training": module.training,
                "parameters": {name: form_of(p) for name, p in module._parameters.items() if p is not None},
                "buffers": {name: form_of(b) for name, b in module._buffers.items() if b is not None},
            }
            for path, module in modules[:MOST_MODULES]
        ],
    }


def optimizer_summary(optimizer: Optimizer) -> dict[str, Any]:
    """Class and settings of each group."""
    return {
        "class": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
        "groups": [
            {
                "tensors": len(group["params"]),
                **{name: _number(group[name]) for name in OF_INTEREST if name in group},
            }
            for group in optimizer.param_groups
        ],
    }


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or a part of it is compiled."""
    return any(
        "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


def form_of(tensor: Tensor) -> str:
    """Dtype and shape, `float32[8, 16]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _number(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
