"""torchtitan as it runs on a machine without a GPU. For tests alone; call it before torchtitan is imported."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.distributed.fsdp import FSDPModule


def put_torchtitan_on_the_cpu() -> None:
    """For the rest of this process: the CPU is the device, and it has what torchtitan asks a device for."""
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.get_device_name = lambda *_: "CPU"
    torch.cpu.get_device_properties = lambda *_: SimpleNamespace(total_memory=1 << 34)
    torch.cpu.memory_stats = lambda *_: {}
    torch.cpu.current_device = lambda: 0
    torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda *_: None
    torch.distributed.set_timeout = lambda *_: None  # which torch 2.13 has not yet
    divide = FSDPModule.set_gradient_divide_factor

    def divide_and_sum(module: FSDPModule, factor: float) -> None:
        # gloo cannot multiply while it sums.
        divide(module, factor)
        module.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = divide_and_sum
