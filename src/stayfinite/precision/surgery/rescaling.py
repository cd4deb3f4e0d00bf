"""What still leaves fp16's range, and which operator stands in the way of a rescaling."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.step import Step
from stayfinite.errors import LossError, UsageError
from stayfinite.inspection.bench.given import loss_in
from stayfinite.inspection.probes.ranges import ranges_of
from stayfinite.precision.formats import FP16
from stayfinite.precision.surgery.families import anatomy_of
from stayfinite.precision.surgery.freedoms import Anatomy, Freedom, deciding, exponents_for, scale
from stayfinite.precision.surgery.measuring import Size, check_full_precision, lost_share, measure, weight_sizes
from stayfinite.precision.surgery.result import Change, Obstacle, Rescaled, Verdict
from stayfinite.state.parts import evaluating
from stayfinite.state.rng import capture_rng

SHARE = 0.25
"""Of fp16's range: training moves activations, and 4 times what was seen leaves room for it."""
TOLERANCE = 1e-3
"""Of the largest logit: about what fp16's own rounding moves it by. Exact rescalings stay near 1e-6."""

SCORES = "softmax depends on the scale of its scores"
UNKNOWN = "unknown architecture"


def rescale(
    model: nn.Module,
    batches: Sequence[Any],
    *,
    share: float = SHARE,
    tolerance: float = TOLERANCE,
    forward: Callable[[Any], Any] | None = None,
) -> Rescaled:
    """Multiply weights by powers of two so that activations fit fp16 and the function stays the same. In place.

    A model whose activations fit is not touched. One that would compute something else is put back as it was.

    Arguments:
        model: of transformers, in fp32.
        batches: what activations are measured on; mappings that the model is called with, labels among them.
        share: the part of 65,504 that no activation may exceed.
        tolerance: by how much logits may differ in fp32, relative to the largest.
        forward: ``forward(batch)`` in place of ``model(**batch)``; its result has `loss` and `logits`.

    Raises:
        UsageError: no batch, weights in half precision, or activations that are not finite in fp32 either.
    """
    _check(model, batches, share)
    run = forward or (lambda batch: model(**batch))
    limit, anatomy = share * FP16.largest, anatomy_of(model)
    before = measure(model, batches, run)
    largest = _largest(before)
    if not math.isfinite(largest):
        worst = next(name for name, size in before.items() if not math.isfinite(size.largest))
        raise UsageError(
            f"{worst.partition(':')[0]} is NaN or inf in fp32 too",
            fix="rescaling cannot help; check the weights: `stayfinite scan`",
        )
    result = Rescaled(
        verdict="nothing to do",
        architecture=type(model).__name__,
        share=share,
        limit=limit,
        largest_before=largest,
        largest_after=largest,
        modules=_by_module(before, before),
        lost_before=lost_share(before),
        lost_after=lost_share(before),
    )
    weights = weight_sizes(model)
    result.lost_weights_before = result.lost_weights_after = lost_share(weights)
    result.overflows_before = result.overflows_after = beyond = overflowing(model, batches[0], run)
    if largest <= limit and not beyond and _largest(weights) <= limit:
        return result
    if anatomy is not None:
        _operate(model, batches, run, anatomy, before, tolerance, result)
    after = measure(model, batches, run) if result.changes else before
    result.modules, result.largest_after = _by_module(before, after), _largest(after)
    result.lost_after, result.lost_weights_after = lost_share(after), lost_share(weight_sizes(model))
    if result.changes:
        result.overflows_after = overflowing(model, batches[0], run)
    result.obstacles = obstacles(model, after, result.overflows_after, anatomy, result.refused)
    result.verdict = _verdict(result)
    return result


def _operate(
    model: nn.Module,
    batches: Sequence[Any],
    run: Callable[[Any], Any],
    anatomy: Anatomy,
    sizes: Mapping[str, Size],
    tolerance: float,
    result: Rescaled,
) -> None:
    """Scale, compare, and where it is not the same function, take back what could not be exact."""
    exponents = exponents_for(model, anatomy, sizes, result.limit)
    reference = outputs(model, batches, run)
    kept = {name: model.get_parameter(name).detach().clone() for name in anatomy.offsets}
    used = [each for each in anatomy.freedoms if each.name in exponents]
    nearly = [each for each in used if each.norms and not each.setting]
    for chosen in [used, [each for each in used if each not in nearly]] if nearly else [used]:
        powers = {each.name: exponents[each.name] for each in chosen}
        parameters = scale(model, anatomy, powers)
        logits, loss = differences(reference, outputs(model, batches, run))
        if logits <= tolerance and loss <= tolerance:
            result.changes = [_change(each, exponents[each.name], sizes) for each in chosen]
            result.parameters = parameters
            result.logits_difference, result.loss_difference = logits, loss
            return
        _put_back(model, anatomy, powers, kept)
        why = "its layer-norm epsilon is fixed in code; " if nearly else ""
        result.refused = f"{why}rescaled, the logits would differ by {logits:.1e} (tolerance {tolerance:.0e})"


def _put_back(model: nn.Module, anatomy: Anatomy, powers: Mapping[str, int], kept: Mapping[str, Tensor]) -> None:
    """Powers of two come off as they went on; what is stored less 1 was rounded, and is copied back."""
    scale(model, anatomy, {name: -exponent for name, exponent in powers.items()})
    with torch.no_grad():
        for name, value in kept.items():
            model.get_parameter(name).copy_(value)


def _change(freedom: Freedom, exponent: int, sizes: Mapping[str, Size]) -> Change:
    because = deciding(freedom, sizes)
    return Change(
        freedom=freedom.name,
        exponent=exponent,
        because=because,
        largest=sizes[because].largest,
        nearly=bool(freedom.norms and not freedom.setting),
    )


def outputs(
    model: nn.Module, batches: Sequence[Any], run: Callable[[Any], Any]
) -> list[tuple[Tensor | None, float | None]]:
    """Logits and loss of each batch; whatever of the two there is."""
    found = []
    with evaluating(model), torch.no_grad():
        for batch in batches:
            returned = run(batch)
            logits = getattr(returned, "logits", None)
            if logits is None:
                logits = getattr(returned, "last_hidden_state", None)
            has_loss = isinstance(returned, Tensor) or getattr(returned, "loss", None) is not None
            found.append((logits, float(loss_in(returned)) if has_loss else None))
    return found


def differences(
    before: Sequence[tuple[Tensor | None, float | None]], after: Sequence[tuple[Tensor | None, float | None]]
) -> tuple[float, float]:
    """The largest relative difference of the logits and of the loss."""
    logits = loss = 0.0
    for (one, one_loss), (other, other_loss) in zip(before, after, strict=True):
        if one is not None and other is not None:
            difference = float((one - other).abs().amax() / one.abs().amax().clamp_min(1e-30))
            logits = max(logits, difference if math.isfinite(difference) else math.inf)
        if one_loss is not None and other_loss is not None:
            difference = abs(one_loss - other_loss) / max(abs(one_loss), 1e-30)
            loss = max(loss, difference if math.isfinite(difference) else math.inf)
    return logits, loss


def _verdict(result: Rescaled) -> Verdict:
    if not result.changes:
        return "blocked" if result.obstacles else "nothing to do"
    return "partly" if result.obstacles else "rescaled"


def _largest(sizes: Mapping[str, Size]) -> float:
    return max((size.largest for size in sizes.values()), default=0.0)


def _by_module(before: Mapping[str, Size], after: Mapping[str, Size]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name, size in before.items():
        module = name.partition(":")[0]
        one, other = found.get(module, (0.0, 0.0))
        found[module] = max(one, size.largest), max(other, after[name].largest)
    return found


def _check(model: nn.Module, batches: Sequence[Any], share: float) -> None:
    if not batches:
        raise UsageError("no batch to measure activations on", fix="rescale(model, [batch, ...])")
    if not 0 < share <= 1:
        raise UsageError(f"share is {share}", fix="a share of fp16's range, above 0 and at most 1: share=0.25")
    check_full_precision(model)


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
    for name, size in weight_sizes(model).items():
        if size.largest > FP16.largest:
            note(name.rpartition(".")[0], size.largest, f"{name} itself exceeds fp16")
    return sorted(found.values(), key=lambda each: -each.largest)
