"""Gradients, optimizers and GradScalers: stale, cleared, missing or unowned gradients, and no scale that works."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from stayfinite.doctor.frames import short
from stayfinite.doctor.record import OptimizerSeen, Program
from stayfinite.doctor.told import Told, told

FEWEST = 3
MOST_NAMED = 4
FEWEST_SKIPPED = 10
"""Skipped steps below which the scale may still settle."""


def judge(program: Program) -> Iterator[Told]:
    """Faults between backward and step."""
    yield from _missing(program)
    for seen in program.optimizers.values():
        if type(seen.optimizer).__name__ == "LBFGS" or seen.steps < FEWEST:
            continue
        yield from _stale(seen)
        yield from _nothing(program, seen)
        yield from _rate(seen)
        yield from _accumulation(program, seen)
    if program.hand is not None and program.by_hand and program.hand.steps >= FEWEST:
        yield from _stale(program.hand)
    yield from _unowned(program)
    yield from _detached(program)
    yield from _overflowing(program)


def _overflowing(program: Program) -> Iterator[Told]:
    """The scale of a GradScaler fell below 1 and steps are skipped: the overflow does not depend on it."""
    scales = program.scales.values
    if program.skipped < FEWEST_SKIPPED or not len(scales) or scales[-1] >= 1.0:
        return
    said = f"GradScaler skipped {program.skipped} of {len(scales)} steps; its scale fell to {scales[-1]:.3g}."
    place = next(iter(program.losses), ("", 0))
    yield told("loss-scale-collapse", [said, "Gradients overflow at every scale."], place=place, weight=2.0)


def _detached(program: Program) -> Iterator[Told]:
    """A model called at every step whose parameters never get a gradient."""
    looks = {
        id(p): (seen.none_always.get(id(p), 0), seen.looks)
        for seen in program.optimizers.values()
        if seen.steps >= FEWEST and seen.nothing < 0.8 * seen.steps
        for p in seen.parameters
        if p.requires_grad
    }
    for model in program.models.values():
        mine = [looks[id(p)] for p in model.module.parameters() if id(p) in looks]
        if mine and model.calls_training >= FEWEST and all(none >= every >= FEWEST for none, every in mine):
            name = program.names.get(id(model.module), type(model.module).__name__)
            yield told(
                "detached-loss",
                [f"{name} ran {model.calls_training} times in training.",
                 f"None of its {len(mine)} parameters got a gradient."],
                title="The graph is cut between a model and the loss.", where=name, weight=1.9,
                fix=f"let the gradient through: no .data, .detach(), numpy or no_grad between {name} and the loss",
            )  # fmt: skip
            return


def _missing(program: Program) -> Iterator[Told]:
    """backward or step is never called."""
    steps = sum(each.steps for each in program.optimizers.values())
    if steps >= FEWEST and not program.backwards:
        seen = next(each for each in program.optimizers.values() if each.steps)
        if not any(norm > 0 for each in program.optimizers.values() for norm in each.norms.finite):
            yield told(
                "step-missing", [f"The optimizer took {steps} steps. backward was never called."],
                place=seen.step_place, weight=2.6,
                fix="call loss.backward() before optimizer.step(), with its parentheses",
            )  # fmt: skip
    elif not steps and not program.skipped and program.backwards >= 2 * FEWEST and program.optimizers:
        seen = next(iter(program.optimizers.values()))
        known = [p for p in seen.parameters if id(p) in program.first_weights]
        if known and all(bool((program.first_weights[id(p)] == p.detach()).all()) for p in known):
            place = next(iter(program.losses), seen.place)
            yield told(
                "step-missing",
                [f"backward ran {program.backwards} times. The optimizer built at {short(seen.place)} never stepped."],
                place=place, weight=2.6,
                fix="call optimizer.step() after loss.backward(); if there is one under an `if`, that was never true",
            )  # fmt: skip


def _stale(seen: OptimizerSeen) -> Iterator[Told]:
    if seen.stale < max(FEWEST, 0.45 * seen.steps):
        return
    place = seen.step_place
    if seen.idle >= 0.4 * seen.steps:
        said = f"{seen.idle} of {seen.steps} steps reused the gradients of the step before."
        yield told("double-step", [said], place=place, weight=2.0)
        return
    yield told(
        "no-zero-grad", [f"{seen.stale} of {seen.steps} steps also applied gradients left over from earlier steps."],
        place=place, weight=2.2, fix="clear the gradients before loss.backward(), at every step: optimizer.zero_grad()",
    )  # fmt: skip


def _nothing(program: Program, seen: OptimizerSeen) -> Iterator[Told]:
    if seen.nothing < max(FEWEST, 0.8 * seen.steps):
        return
    if seen.cleared_unused >= 0.6 * seen.steps:
        place = seen.cleared_place
        cleared = f"{short(place)} cleared fresh gradients {seen.cleared_unused} times before a step used them."
        said = [f"{seen.nothing} of {seen.steps} steps found no gradient.", cleared]
        yield told("cleared-before-step", said, place=place, weight=2.5)
        return
    parameters = seen.parameters
    if parameters and not any(p.requires_grad for p in parameters):
        yield told(
            "params-frozen", [f"None of the optimizer's {len(parameters)} parameters requires a gradient."],
            place=seen.place, weight=2.4,
        )  # fmt: skip
        return
    learning = [p for p in parameters if p.requires_grad]
    none = sum(1 for p in learning if seen.none_always.get(id(p), 0) >= seen.looks > 0)
    if none and none >= 0.9 * len(learning):
        others = _unheld_with_gradient(program)
        if others:
            yield told(
                "params-not-in-optimizer",
                [
                    f"No parameter of the optimizer built at {short(seen.place)} ever got a gradient.",
                    f"{_named(others)} got gradients, but no optimizer holds them.",
                ],
                place=seen.place, weight=2.6,
                fix="build the optimizer from the model that is trained, after that model is final",
            )  # fmt: skip
            return
        yield told(
            "detached-loss",
            [f"No parameter of the {type(seen.optimizer).__name__} built at {short(seen.place)} ever got a gradient."],
            place=seen.backward_place, weight=2.3,
            fix="compute the loss from the model's output, without .item(), .data, .detach(), numpy or torch.tensor",
        )  # fmt: skip
        return
    losses = program.main_loss().finite
    if losses and abs(losses[-1]) > 1e-6:
        yield told(
            "zero-gradient",
            [f"Every gradient was exactly 0 at {seen.nothing} of {seen.steps} steps; the loss is {losses[-1]:.4g}."],
            place=seen.step_place, weight=1.6,
        )  # fmt: skip


def _rate(seen: OptimizerSeen) -> Iterator[Told]:
    rates = list(seen.rates.values)
    if rates and len(rates) >= FEWEST and max(abs(rate) for rate in rates) == 0.0:
        yield told("lr-zero", [f"The learning rate was 0 at all {len(rates)} steps."], place=seen.place, weight=2.4)
    elif rates and max(rates) < 0:
        yield told(
            "flipped-sign", [f"The learning rate is negative: {rates[0]:g}."],
            place=seen.place, weight=2.4, fix="use a positive learning rate",
        )  # fmt: skip


def _accumulation(program: Program, seen: OptimizerSeen) -> Iterator[Told]:
    """Several backward calls per step, each with the full mean of its batch."""
    counts = seen.backwards_a_step
    usual = sorted(counts)[len(counts) // 2] if counts else 0
    if usual < 2 or len(program.losses) != 1 or len(program.optimizers) != 1 or counts.count(usual) < 0.7 * len(counts):
        return
    loss = program.main_loss()
    undivided = [
        each
        for each in program.loss_calls.values()
        if each.learns and each.reduction == "mean" and len(loss) and each.value == loss.values[-1]
    ]
    if undivided:
        place = next(iter(program.losses))
        yield told(
            "accumulation-unscaled",
            [f"{usual} backward calls a step, each with its batch's full mean: gradients are {usual} times too large."],
            place=place, weight=1.5, fix=f"(loss / {usual}).backward()",
        )  # fmt: skip


def _unowned(program: Program) -> Iterator[Told]:
    stepping = [each for each in program.optimizers.values() if each.steps >= FEWEST]
    if not stepping or len(stepping) != len(program.optimizers):
        return
    if any(each.nothing >= 0.8 * each.steps for each in stepping):
        return
    inside = {id(p) for model in program.models.values() for p in model.module.parameters()}
    held = program.held()
    if held and not held & inside:
        return  # an image or prompt is trained through a frozen model
    others = _unheld_with_gradient(program)
    if not others:
        return
    place = stepping[0].place
    total = sum(p.numel() for _, p in others)
    yield told(
        "params-not-in-optimizer",
        [
            f"{_named(others)}: {len(others)} tensors ({total:,} values) get gradients, but no optimizer holds them.",
            "They have not changed since the first step.",
        ],
        place=place, weight=1.9,
        fix="give the optimizer all parameters that should learn; requires_grad_(False) for the others",
    )  # fmt: skip


def _unheld_with_gradient(program: Program) -> list[tuple[str, Tensor]]:
    held = program.held()
    found: dict[int, tuple[str, Tensor]] = {}
    for model in program.models.values():
        if id(model.module) in program.loaded or isinstance(model.module, nn.modules.loss._Loss):
            continue
        owner = program.names.get(id(model.module), type(model.module).__name__)
        for name, p in model.module.named_parameters():
            start = program.first_weights.get(id(p))
            if (
                p.requires_grad
                and p.grad is not None
                and id(p) not in held
                and start is not None
                and start.shape == p.shape
                and bool((start == p.detach()).all())
                and bool(p.grad.any())
            ):
                found[id(p)] = (f"{owner}.{name}", p)
    return list(found.values())


def _named(parameters: list[tuple[str, Tensor]]) -> str:
    names = [name for name, _ in parameters]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
