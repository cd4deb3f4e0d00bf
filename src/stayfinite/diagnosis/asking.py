"""Which missing fact would change the diagnosis most: each possible answer is tried before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.rules.context import Context

LEAST_CHANGE = 0.1
"""A question whose answers move less of the confidence is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One missing fact."""

    name: str
    """As in `--tell name=value`."""
    text: str
    answers: tuple[str, ...]
    """Usual ones, which are tried; any other is welcome."""


_FACTS: tuple[tuple[Question, Callable[[Context], object]], ...] = (
    (
        Question(name="precision", text="Which precision does it train in?", answers=("fp16", "bf16", "fp32")),
        lambda context: context.precision or context.weights,
    ),
    (Question(name="gpu", text="Which GPU?", answers=("T4", "V100", "A100")), lambda context: context.gpu),
    (
        Question(name="model", text="Which model?", answers=("t5-base", "bert-base-uncased", "Llama-3.1-8B")),
        lambda context: context.model or context.family,
    ),
    (
        Question(name="learning_rate", text="Which learning rate?", answers=("0.1", "1e-3", "2e-5")),
        lambda context: context.lr,
    ),
    (Question(name="optimizer", text="Which optimizer?", answers=("adamw", "sgd")), lambda context: context.optimizer),
    (
        Question(name="max_grad_norm", text="Are gradients clipped, and at which norm (0: no)?", answers=("0", "1.0")),
        lambda context: context.clip,
    ),
    (
        Question(name="attn_implementation", text="Which attention?", answers=("eager", "sdpa", "flash_attention_2")),
        lambda context: context.attention,
    ),
)


def next_question(context: Context, asked: Sequence[str], judged_with: Callable[[str], Diagnosis]) -> Question | None:
    """The fact that is missing and whose answers differ most in what they lead to; None where none would change much.

    Arguments:
        context: what is known.
        asked: names of facts that were asked for.
        judged_with: the diagnosis if `name=value` were told.
    """
    best, most = None, LEAST_CHANGE
    for question, known in _FACTS:
        if question.name in asked or known(context):
            continue
        spread = _spread([_shares(judged_with(f"{question.name}={answer}")) for answer in question.answers])
        if spread > most:
            best, most = question, spread
    return best


def _shares(diagnosis: Diagnosis) -> dict[str, float]:
    """How the confidence is divided among causes."""
    causes = {each.cause: each.confidence for each in diagnosis.findings if each.severity != "info"}
    total = sum(causes.values())
    return {cause: value / total for cause, value in causes.items()} if total else {}


def _spread(answers: Sequence[Mapping[str, float]]) -> float:
    """How far the answers lie apart: the mean distance from their average, from 0 to 1."""
    causes = {cause for answer in answers for cause in answer}
    mean = {cause: sum(answer.get(cause, 0.0) for answer in answers) / len(answers) for cause in causes}
    distances = [sum(abs(answer.get(cause, 0.0) - mean[cause]) for cause in causes) / 2 for answer in answers]
    return sum(distances) / len(distances)
