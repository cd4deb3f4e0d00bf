"""Why a step was refused: re-run batch and weights in fp32 and fp16, module by module."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stayfinite.demo.alphabet import character_at
from stayfinite.demo.model import TinyT5
from stayfinite.demo.task import Batch

FP16_MAX = torch.finfo(torch.float16).max


@dataclass(frozen=True, kw_only=True, slots=True)
class Overflow:
    """The first module that is non-finite in fp16, with an output that fits fp32."""

    step: int
    module: str
    peak: float
    """Largest magnitude of its output in fp32."""
    rows: tuple[int, ...]
    """Batch rows beyond fp16, counted from 0."""
    characters: tuple[str, ...]
    """Source characters at those positions; empty for a module that does not see the source."""
    fp32_loss: float


@torch.no_grad()
def find_overflow(model: TinyT5, batch: Batch, step: int) -> Overflow | None:
    """Prove that fp16's range made this batch non-finite; None if it did not."""
    in_fp32 = _first_output(model, batch, torch.float32, lambda out: bool((out.abs() > FP16_MAX).any()))
    in_fp16 = _first_output(model, batch, torch.float16, lambda out: not bool(out.isfinite().all()))
    if in_fp32.module is None or in_fp32.module != in_fp16.module or not in_fp32.loss.isfinite():
        return None
    beyond = (in_fp32.output.abs() > FP16_MAX).any(-1)  # [B, S]
    source = batch["source"]
    characters: list[str] = []
    if in_fp32.module.startswith("encoder."):
        characters = [character_at(source[row], place) for row, place in beyond.nonzero().tolist()]
    return Overflow(
        step=step,
        module=in_fp32.module,
        peak=in_fp32.output.abs().max().item(),
        rows=tuple(beyond.any(-1).nonzero().flatten().tolist()),
        characters=tuple(dict.fromkeys(characters)),
        fp32_loss=in_fp32.loss.item(),
    )


@dataclass(slots=True)
class _World:
    loss: Tensor
    output: Tensor
    module: str | None = None


def _first_output(model: TinyT5, batch: Batch, dtype: torch.dtype, wanted: Callable[[Tensor], bool]) -> _World:
    """One forward pass in `dtype`; return the first module output, in execution order, that is `wanted`."""
    world = _World(loss=torch.empty(0), output=torch.empty(0))

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if world.module is None and wanted(output):
                world.module, world.output = name, output.float()

        return hook

    leaves = ((name, module) for name, module in model.named_modules() if not any(module.children()))
    hooks = [module.register_forward_hook(watch(name)) for name, module in leaves]
    try:
        with torch.autocast("cpu", dtype=torch.float16, enabled=dtype is torch.float16):
            world.loss = model(batch["source"], batch["target"])
    finally:
        for hook in hooks:
            hook.remove()
    return world
