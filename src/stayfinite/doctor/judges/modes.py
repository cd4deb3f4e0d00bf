"""Training and evaluation mode at each model call."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from stayfinite.doctor.record import Place, Program
from stayfinite.doctor.told import Told, told

FEWEST = 3


def judge(program: Program) -> Iterator[Told]:
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
