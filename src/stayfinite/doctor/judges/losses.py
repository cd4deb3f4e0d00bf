"""Inputs of loss functions: probabilities, logits, shapes, signs."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.doctor.frames import short
from stayfinite.doctor.record import LossSeen, Program
from stayfinite.doctor.slicing import source_line
from stayfinite.doctor.told import Told, told


def judge(program: Program) -> Iterator[Told]:
    """Faults in calls of loss functions."""
    for seen in program.loss_calls.values():
        if seen.looked:
            yield from _given(program, seen)
            yield from _turned(program, seen)
    yield from _crossed(program)


def _line(seen: LossSeen) -> str:
    return f"{short(seen.place)}: {source_line(*seen.place)}"


def _given(program: Program, seen: LossSeen) -> Iterator[Told]:
    if not seen.learns:
        return
    every = seen.looked
    if seen.probabilities == every:
        what = "sigmoid" if "binary" in seen.name else "softmax"
        yield told(
            "softmax-before-cross-entropy",
            [
                _line(seen),
                f"{seen.name} got the output of a {what} in all {every} calls checked.",
            ],
            place=seen.place, where=short(seen.place), weight=2.4,
            title=f"A {what} is applied before {seen.name}, which applies one itself.",
            fix=f"pass raw logits to the loss: remove the {what} before it",
        )  # fmt: skip
    if every in (seen.over_rows, seen.over_batch):
        yield told(
            "softmax-axis", [_line(seen), "The probabilities sum to 1 over the batch, not over the classes."],
            place=seen.place, where=short(seen.place), weight=2.4,
        )  # fmt: skip
    elif seen.scores == every:
        wanted = "probabilities" if seen.name == "binary_cross_entropy" else "log-probabilities"
        yield told(
            "probability-loss-on-logits",
            [_line(seen), f"{seen.name} expects {wanted} but got raw logits."],
            place=seen.place, where=short(seen.place), weight=2.4,
        )  # fmt: skip
    if seen.start is not None and seen.expected and seen.start > max(8 * seen.expected, seen.expected + 15):
        yield told(
            "bad-initial-loss",
            [_line(seen), f"The first loss is {seen.start:.4g}. Guessing gives ln(classes) = {seen.expected:.3g}."],
            place=seen.place, where=short(seen.place), weight=1.3, confidence=0.8,
        )  # fmt: skip
    if seen.name == "cross_entropy" and seen.classes == 1 and seen.calls >= 3:
        yield told(
            "zero-gradient", [_line(seen), "cross_entropy gets one class only, so the loss is always 0."],
            place=seen.place, where=short(seen.place), weight=2.4,
            fix="use binary_cross_entropy_with_logits for a single logit, or give the model one output per class",
        )  # fmt: skip
    if seen.ids == every and seen.calls >= 3 and _fell_to_nothing(program):
        yield told(
            "causal-leak", [_line(seen), "The labels equal the input ids, position by position."],
            place=seen.place, where=short(seen.place), weight=1.9, title="The model is trained to copy its input.",
            fix="shift the labels by one: inputs ids[:, :-1], labels ids[:, 1:]",
        )  # fmt: skip
    if seen.broadcast is not None:
        first, second = seen.broadcast
        yield told(
            "loss-broadcast",
            [_line(seen), f"{seen.name} compares {first} with {second}: it pairs each value with every other."],
            place=seen.place, where=short(seen.place), weight=2.4,
        )  # fmt: skip


def _fell_to_nothing(program: Program) -> bool:
    values = program.main_loss().finite
    return len(values) >= 10 and values[-1] < 0.35 * values[0]


def _turned(program: Program, seen: LossSeen) -> Iterator[Told]:
    stepping = [each for each in program.optimizers.values() if each.steps]
    climbs = stepping and all(group.get("maximize") for each in stepping for group in each.optimizer.param_groups)
    if not seen.learns or len(stepping) > 1 or seen.calls < 3:
        return
    if seen.turned >= 0.9 * seen.calls and not climbs:
        yield told(
            "flipped-sign", [_line(seen), "backward gets the negative of this loss, so training makes it larger."],
            place=next(iter(program.losses), seen.place), where=short(seen.place), weight=2.3,
        )  # fmt: skip
    elif climbs and seen.name in ("cross_entropy", "mse_loss", "l1_loss") and not seen.turned:
        loss = program.main_loss()
        if len(loss) and abs(loss.values[-1] - seen.value) <= 1e-6 * abs(seen.value):
            yield told(
                "flipped-sign", [_line(seen), "The optimizer has maximize=True, so it makes this loss larger."],
                place=stepping[0].place, where=short(stepping[0].place), weight=2.3,
            )  # fmt: skip


def _crossed(program: Program) -> Iterator[Told]:
    for place, (kind, first, second) in program.crossed.items():
        line = f"{short(place)}: {source_line(*place)}"
        if kind == "difference":
            if any(each.broadcast is not None for each in program.loss_calls.values()):
                continue
            yield told(
                "loss-broadcast", [line, f"{first} minus {second} is a square: each value meets every other."],
                place=place, where=short(place), weight=2.2,
            )  # fmt: skip
        else:
            yield told(
                "metric-impossible", [line, f"{first} == {second} broadcasts to a square: it counts pairs, not rows."],
                place=place, where=short(place), weight=1.8,
            )  # fmt: skip
