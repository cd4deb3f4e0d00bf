"""Model calls: training or evaluation mode, and outputs that are identical for every row."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from stayfinite.doctor.record import Place, Program
from stayfinite.doctor.told import Told, told

FEWEST = 3
FEWEST_LOOKS = 4
LATE = 2
"""Number of last looks at which all rows had the same output."""
THROWN_UP = 3.0
"""A loss that rises to this multiple of its start within the first tenth of the steps was driven up by the rate."""


def judge(program: Program) -> Iterator[Told]:
    """Faults of model calls."""
    yield from _modes(program)
    yield from _same_answers(program)


def _modes(program: Program) -> Iterator[Told]:
    """Models that train in evaluation mode, or are evaluated in training mode."""
    held = program.held()
    stepping = [each for each in program.optimizers.values() if each.steps]
    for seen in program.models.values():
        learning = [p for p in seen.module.parameters() if p.requires_grad and id(p) in held]
        if not learning:
            continue
        name = type(seen.module).__name__
        if seen.eval_in_training >= max(FEWEST, 0.3 * seen.calls_training):
            said = f"{name} trained in evaluation mode in {seen.eval_in_training} of {seen.calls_training} calls."
            yield _wrong_mode(
                "The model trains in evaluation mode.", [said, _effect(seen.module, training=False)], seen.eval_place,
                2.0, fix="call model.train() at the start of every training epoch",
            )  # fmt: skip
        elif seen.judged_awake >= 1 and len(stepping) == 1 and seen.judged_awake >= 0.8 * max(1, seen.judged):
            said = f"{name} was evaluated in training mode in {seen.judged_awake} calls."
            yield _wrong_mode(
                "The model is evaluated in training mode.", [said, _effect(seen.module, training=True)],
                seen.train_place, 1.9, fix="call model.eval() before the evaluation and model.train() after it",
            )  # fmt: skip


def _wrong_mode(title: str, evidence: list[str], place: Place, weight: float, fix: str) -> Told:
    return told("wrong-mode", evidence, title=title, place=place, weight=weight, fix=fix)


def _effect(module: nn.Module, *, training: bool) -> str:
    """Effect of a mode on the model's layers."""
    parts = list(module.modules())
    said = []
    if any(isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0 for each in parts):
        said.append("dropout is on" if training else "dropout is off")
    if any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in parts):
        said.append("BatchNorm uses the batch's statistics" if training else "BatchNorm uses its stored statistics")
    words = " and ".join(said)
    return f"{words[:1].upper()}{words[1:]}."


def _same_answers(program: Program) -> Iterator[Told]:
    """Models that give every row the same output."""
    if program.bad is not None:
        return
    for seen in program.learning_models():
        looks = seen.same_answers
        if len(looks) < FEWEST_LOOKS or not all(looks[-LATE:]):
            continue
        name = type(seen.module).__name__
        call = 1 << (len(looks) - 1)
        said = f"{name} gave all rows of a batch the same output in the last {LATE} checks, up to call {call:,}."
        if _all_constant(program, seen.module):
            yield told(
                "bad-init", [said, "Every weight matrix began as a single constant, so its units stay identical."],
                weight=1.6, severity="error",
                fix="keep torch's default init, or draw the weights: nn.init.kaiming_normal_(weight)",
            )  # fmt: skip
            return
        course = program.main_loss().finite
        early = course[: max(2, len(course) // 10)]
        if not looks[0] and early and course[0] > 0 and max(early) > THROWN_UP * course[0]:
            yield told(
                "lr-too-high",
                [f"The loss rose from {course[0]:.4g} to {max(early):.4g} within {len(early)} steps.", said],
                confidence=0.85, weight=1.7,
            )  # fmt: skip
        else:
            began = (
                "It did so from the first call on."
                if looks[0]
                else "It worked at first; its units died during training."
            )
            yield told("dead-units", [said, began], confidence=0.85, weight=1.5, severity="error")
        return


def _all_constant(program: Program, module: nn.Module) -> bool:
    """Whether every weight matrix began as a single constant."""
    first = [program.first_weights.get(id(p)) for p in module.parameters() if p.dim() > 1 and p.numel() > 1]
    return bool(first) and all(each is not None and bool((each == each.reshape(-1)[0]).all()) for each in first)
