"""Result of the demo, and why a step was refused: its batch run again in fp32 and fp16, module by module."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.demo.model import TinyT5
from stayfinite.demo.task import Batch, character_at

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
    loss, module, output = _first_output(model, batch, torch.float32, lambda out: bool((out.abs() > FP16_MAX).any()))
    _, in_fp16, _ = _first_output(model, batch, torch.float16, lambda out: not bool(out.isfinite().all()))
    if module is None or module != in_fp16 or not loss.isfinite():
        return None
    beyond = (output.abs() > FP16_MAX).any(-1)  # [B, S]
    characters: list[str] = []
    if module.startswith("encoder."):
        characters = [character_at(batch["source"][row], place) for row, place in beyond.nonzero().tolist()]
    return Overflow(
        step=step, module=module, peak=output.abs().max().item(), fp32_loss=loss.item(),
        rows=tuple(beyond.any(-1).nonzero().flatten().tolist()), characters=tuple(dict.fromkeys(characters)),
    )  # fmt: skip


def _first_output(
    model: TinyT5, batch: Batch, dtype: torch.dtype, wanted: Callable[[Tensor], bool]
) -> tuple[Tensor, str | None, Tensor]:
    """One forward pass in `dtype`: its loss, and the first module, in execution order, whose output is `wanted`."""
    found: list[tuple[str, Tensor]] = []

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if not found and wanted(output):
                found.append((name, output.float()))

        return hook

    leaves = ((name, module) for name, module in model.named_modules() if not any(module.children()))
    hooks = [module.register_forward_hook(watch(name)) for name, module in leaves]
    try:
        with torch.autocast("cpu", dtype=torch.float16, enabled=dtype is torch.float16):
            loss: Tensor = model(batch["source"], batch["target"])
    finally:
        for hook in hooks:
            hook.remove()
    return (loss, *found[0]) if found else (loss, None, torch.empty(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneResult:
    """Result of one lane. Everything except `logged_loss` is measured in fp32 on held-out pairs."""

    name: str
    what: str
    logged_loss: str
    """Last loss in its log."""
    held_out_loss: float
    exact: float
    """Share of held-out phrases translated exactly."""
    exact_items: float
    """The same for held-out phrases that start with the bullet."""
    steps: int
    refused: int
    non_finite_weights: float
    """Share of weights that are NaN or infinite."""
    seconds: float
    """CPU time of the training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoResult:
    """The three lanes, why the guard refused, and where everything was written."""

    seed: int
    steps: int
    seconds: float
    """Wall-clock time."""
    lanes: tuple[LaneResult, ...]
    overflow: Overflow | None
    refused_with_character: int
    """Refused batches that contain the characters at which the overflow was found."""
    accepted_with_character: int
    out: Path

    def lane(self, name: str) -> LaneResult:
        return next(lane for lane in self.lanes if lane.name == name)

    def why(self) -> str:
        """One sentence, from the re-run of the first refused batch."""
        guarded = self.lane("guarded")
        refused = f"refused {guarded.refused} of {guarded.steps} steps"
        if self.overflow is None:
            return f"{refused}." if guarded.refused else "refused no step."
        found = self.overflow
        rows = f"row{'s' * (len(found.rows) > 1)} {_listed([str(row) for row in found.rows])}"
        marks = f", at {_listed([repr(mark) for mark in found.characters])}" if found.characters else ""
        sentence = (
            f"{refused}. Step {found.step} re-run: {found.module} reaches {found.peak:,.0f} in {rows} of the "
            f"batch{marks} (fp16 limit {FP16_MAX:,.0f}). The same batch in fp32 is finite, loss "
            f"{found.fp32_loss:.2f}."
        )
        if not found.characters:
            return sentence
        return (
            f"{sentence} {self.refused_with_character} of {guarded.refused} refused batches contain it, and "
            f"{self.accepted_with_character} of {guarded.steps - guarded.refused} accepted ones."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; non-finite numbers are None."""
        plain: dict[str, Any] = _strict({"version": 1, **asdict(self), "out": str(self.out), "why": self.why()})
        return plain


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
