"""megatron-core as it runs on a machine without a GPU: devices called `cuda` are the CPU. For tests alone."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class CudaIsTheCpu(TorchFunctionMode):
    """Factories that ask for `cuda` get the CPU, and tensors there say that they are of a kind that megatron takes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.")
        if func is Tensor.cuda:
            return args[0]
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def put_megatron_on_the_cpu() -> None:
    """For the rest of this process. There is one random stream, which every rank uses alike."""
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker

    CudaIsTheCpu().__enter__()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: None
    CudaRNGStatesTracker.fork = lambda self, name="": contextlib.nullcontext()
