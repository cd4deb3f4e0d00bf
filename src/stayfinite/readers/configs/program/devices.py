"""Answer hardware queries for the assumed GPU."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import External, Row, Value

_BF16 = frozenset({"is_bf16_supported", "is_torch_bf16_gpu_available", "is_bfloat16_supported", "is_bf16_available"})
_OTHERS = frozenset(
    {
        "torch.backends.mps.is_available", "torch.backends.mps.is_built", "torch.xpu.is_available",
        "torch.npu.is_available", "torch.mps.is_available", "is_torch_npu_available", "is_torch_xpu_available",
        "is_torch_mps_available", "is_torch_xla_available", "is_torch_tpu_available",
    }
)  # fmt: skip
"""Backends other than CUDA."""


def answered(run: Run, function: External, positional: list[Value], node: ast.expr) -> Value | None:
    """Evaluate `torch.cuda.is_available()` and similar; None for any other call."""
    full = function.full
    last = full.rpartition(".")[2]
    card, cuda = run.surroundings.card, run.surroundings.cuda
    if full in {"torch.cuda.is_available", "cuda.is_available", "torch.accelerator.is_available"}:
        return run.value(cuda, node)
    if last in _BF16:
        known = run.surroundings.bf16
        return run.unknown(node) if known is None else run.value(known, node)
    if full in _OTHERS or last in _OTHERS:
        return run.value(False, node)
    if full in {"torch.cuda.device_count", "torch.accelerator.device_count"}:
        return run.unknown(node, least=1) if cuda else run.value(0, node)
    if full == "torch.cuda.get_device_capability" and card is not None and cuda and not card.amd:
        return run.value(Row({"items": [run.value(each, node) for each in card.capability]}), node)
    if full == "torch.cuda.get_device_name" and card is not None and cuda:
        return run.value(card.name, node)
    if full in {"torch.device", "device"} and positional and isinstance(positional[0].data, str):
        return positional[0]
    if full in {"torch.get_default_device", "torch.accelerator.current_accelerator"}:
        return run.value("cuda" if cuda else "cpu", node)
    return None
