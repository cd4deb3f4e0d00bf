"""What still leaves fp16's range, and which operator stands in the way of a rescaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from stayfinite.autopsy.steps.step import Step
from stayfinite.errors import LossError
from stayfinite.inspection.bench.loss_of import loss_in
from stayfinite.inspection.probes.ranges import ranges_of
from stayfinite.precision.formats import FP16
from stayfinite.precision.surgery.freedoms import Anatomy
from stayfinite.precision.surgery.measuring import Size
from stayfinite.precision.surgery.result import Obstacle
from stayfinite.state.rng import capture_rng

SCORES = "softmax depends on the scale of its scores"
UNKNOWN = "unknown architecture"


def overflowing(model: nn.Module, batch: Any, run: Callable[[Any], Any]) -> dict[str, float]:
    """`operator in module` -> size in fp32, of the forward operators that overflow in a step under fp16 autocast."""
    step = Step(model=model, forward=lambda given: loss_in(run(given)), batch=batch, rng=capture_rng())
    try:
        ranges = ranges_of(step)
    except LossError:  # a model without a loss is measured module by module alone
        return {}
    return {f"{each.operator} in {each.module}": each.largest for each in ranges.overflows if not each.backward}


def obstacles(
    model: nn.Module, sizes: Mapping[str, Size], overflows: Mapping[str, float], anatomy: Anatomy | None, refused: str
) -> list[Obstacle]:
    """The innermost modules in which something is beyond fp16, the largest first."""
    inner = {path for path, module in model.named_modules() if path and not any(module.children())}
    free = {name for each in (anatomy.freedoms if anatomy else ()) for name in each.activations}
    found: dict[str, Obstacle] = {}

    def note(module: str, largest: float, why: str) -> None:
        if module not in found or largest > found[module].largest:
            found[module] = Obstacle(module=module, largest=largest, why=UNKNOWN if anatomy is None else why)

    for name, size in sizes.items():
        module = name.partition(":")[0]
        if module in inner and size.largest > FP16.largest:
            bound = refused or "its factor is fixed on both sides"
            why = (anatomy.fixed if anatomy else {}).get(name) or (bound if name in free else "")
            note(module, size.largest, why or "its input cannot be rescaled")
    for place, largest in overflows.items():
        operator, _, module = place.partition(" in ")
        if not any(each == module or each.startswith(f"{module}.") for each in found):
            note(module, largest, SCORES if "attn" in module.lower() or "attention" in module.lower() else operator)
    for name, parameter in model.named_parameters():
        largest = float(parameter.detach().abs().amax()) if parameter.numel() else 0.0
        if largest > FP16.largest:
            note(name.rpartition(".")[0], largest, f"{name} itself exceeds fp16")
    return sorted(found.values(), key=lambda each: -each.largest)
