"""Inputs of loss functions: probabilities, logits, shapes, signs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfinite.doctor.frames import short
from stayfinite.doctor.record import LossSeen, Place, Program
from stayfinite.doctor.slicing import quoted
from stayfinite.doctor.told import Told, told


def judge(program: Program) -> Iterator[Told]:
    """Faults in calls of loss functions."""
    for seen in program.loss_calls.values():
        if seen.looked:
            yield from _given(program, seen)
            yield from _turned(program, seen)
    yield from _crossed(program)


def _fault(place: Place, cause: str, said: str, weight: float = 2.4, **more: Any) -> Told:
    """A fault of the line that calls a loss, which is quoted."""
    return told(cause, [quoted(place), said], place=place, weight=weight, **more)


def _given(program: Program, seen: LossSeen) -> Iterator[Told]:
    if not seen.learns:
        return
    every, place = seen.looked, seen.place
    if seen.probabilities == every:
        what = "sigmoid" if "binary" in seen.name else "softmax"
        yield _fault(
            place, "softmax-before-cross-entropy",
            f"{seen.name} got the output of a {what} in all {every} calls checked.",
            title=f"A {what} is applied before {seen.name}, which applies one itself.",
            fix=f"pass raw logits to the loss: remove the {what} before it",
        )  # fmt: skip
    if every in (seen.over_rows, seen.over_batch):
        yield _fault(place, "softmax-axis", "The probabilities sum to 1 over the batch, not over the classes.")
    elif seen.scores == every:
        wanted = "probabilities" if seen.name == "binary_cross_entropy" else "log-probabilities"
        yield _fault(place, "probability-loss-on-logits", f"{seen.name} expects {wanted} but got raw logits.")
    if seen.start is not None and seen.expected and seen.start > max(8 * seen.expected, seen.expected + 15):
        said = f"The first loss is {seen.start:.4g}. Guessing gives ln(classes) = {seen.expected:.3g}."
        yield _fault(place, "bad-initial-loss", said, 1.3, confidence=0.8)
    if seen.name == "cross_entropy" and seen.classes == 1 and seen.calls >= 3:
        yield _fault(
            place, "zero-gradient", "cross_entropy gets one class only, so the loss is always 0.",
            fix="use binary_cross_entropy_with_logits for a single logit, or give the model one output per class",
        )  # fmt: skip
    if seen.ids == every and seen.calls >= 3 and _fell_to_nothing(program):
        yield _fault(
            place, "causal-leak", "The labels equal the input ids, position by position.", 1.9,
            title="The model is trained to copy its input.",
            fix="shift the labels by one: inputs ids[:, :-1], labels ids[:, 1:]",
        )  # fmt: skip
    if seen.broadcast is not None:
        first, second = seen.broadcast
        said = f"{seen.name} compares {first} with {second}: it broadcasts to every pair."
        yield _fault(place, "loss-broadcast", said)


def _fell_to_nothing(program: Program) -> bool:
    values = program.main_loss().finite
    return len(values) >= 10 and values[-1] < 0.35 * values[0]


def _turned(program: Program, seen: LossSeen) -> Iterator[Told]:
    stepping = [each for each in program.optimizers.values() if each.steps]
    climbs = stepping and all(group.get("maximize") for each in stepping for group in each.optimizer.param_groups)
    if not seen.learns or len(stepping) > 1 or seen.calls < 3:
        return
    line = quoted(seen.place)
    if seen.turned >= 0.9 * seen.calls and not climbs:
        yield told(
            "flipped-sign", [line, "backward gets the negative of this loss, so training makes it larger."],
            place=next(iter(program.losses), seen.place), where=short(seen.place), weight=2.3,
        )  # fmt: skip
    elif climbs and seen.name in ("cross_entropy", "mse_loss", "l1_loss") and not seen.turned:
        loss = program.main_loss()
        if len(loss) and abs(loss.values[-1] - seen.value) <= 1e-6 * abs(seen.value):
            said = "The optimizer has maximize=True, so it makes this loss larger."
            yield told("flipped-sign", [line, said], place=stepping[0].place, weight=2.3)


def _crossed(program: Program) -> Iterator[Told]:
    for place, (kind, first, second) in program.crossed.items():
        if kind != "difference":
            said = f"{first} == {second} broadcasts to a square: it counts pairs, not rows."
            yield _fault(place, "metric-impossible", said, 1.8)
        elif not any(each.broadcast is not None for each in program.loss_calls.values()):
            said = f"{first} minus {second} is a square: each value meets every other."
            yield _fault(place, "loss-broadcast", said, 2.2)
