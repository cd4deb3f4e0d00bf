"""Asking a model held-out questions: what it says, how much of it is right, and how far its probabilities are off."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stayfinite.recipes.chat.answers import Scores, is_right, number_in, parsed, score
from stayfinite.recipes.chat.batching import Padding, supervised
from stayfinite.recipes.chat.generating import generate
from stayfinite.recipes.chat.losses import loss_of
from stayfinite.recipes.chat.prompts import Example, Prompting
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.records import write_record

TOLD = ("accuracy", "answer_rate", "loss")
"""Scores for loggers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What was said, and what it is worth."""

    scores: Scores
    loss: float
    """Cross-entropy of the right answers, by token."""
    texts: list[str]

    def to_json(self) -> dict[str, Any]:
        """The figures. ``merit`` orders models: accuracy, then answer rate, then loss."""
        # The loss is squeezed below what one answer more or less can count.
        merit = self.scores.accuracy + 1e-4 * self.scores.answer_rate + 1e-8 / (1 + self.loss)
        return {
            "accuracy": self.scores.accuracy,
            "answer_rate": self.scores.answer_rate,
            "questions": self.scores.questions,
            "loss": self.loss,
            "merit": merit,
        }


def evaluate(
    model: Any,
    prompting: Prompting,
    questions: Sequence[Question],
    *,
    new_tokens: int,
    limit: int,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    samples: int = 0,
    batch_size: int = 128,
    say: Callable[[str], None] = print,
    progress: Callable[[int, int], None] | None = None,
    place: Place | None = None,
) -> Evaluation:
    """Ask each question once, with the likeliest tokens. Training's random numbers stay as they are.

    Arguments:
        limit: tokens in a row, as in training.
        samples: so many answers are shown.
        place: of this process; each of several asks its part of the questions, and all have the scores of the whole.
    """

    def ask(asked: list[str]) -> list[str]:
        return generate(
            model, prompting, asked, new_tokens=new_tokens, autocast=autocast, batch_size=batch_size, limit=limit,
            progress=progress,
        )  # fmt: skip

    every = [question.text for question in questions]
    with kept_random(next(model.parameters()).device):
        texts = ask(every) if place is None else place.shared_out(every, ask, size=len)
        loss = held_out_loss(model, prompting, questions, limit=limit, autocast=autocast, place=place)
    for question, text in list(zip(questions, texts, strict=True))[:samples]:
        given = parsed(text, numeric=number_in(question.answer) is not None)
        verdict = "right" if is_right(given, question.answer) else f"not {question.answer}"
        shown = " ".join(text.split())
        say(f"  {question.text[:100]}\n    {shown[:160] or '(nothing)'}  [{verdict}]")
    return Evaluation(scores=score(texts, [question.answer for question in questions]), loss=loss, texts=texts)


def kept_random(device: torch.device) -> AbstractContextManager[None]:
    """Context that leaves the random numbers of training as they are."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def scored_once(path: Path, place: Place, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Scores that a run computes once, before its first step, and keeps in this file."""
    known: dict[str, Any] | None = place.from_first(json.loads(path.read_text("utf-8")) if path.exists() else None)
    if known is None:
        known = ask()
        if place.first:
            write_record(path, known)
    return known


def held_out_loss(
    model: Any,
    prompting: Prompting,
    questions: Sequence[Question],
    *,
    limit: int,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    batch_size: int = 32,
    place: Place | None = None,
) -> float:
    """Mean cross-entropy over the tokens of the right answers; of several processes each computes its part."""
    compute = loss_of(model, next(model.parameters()).device)
    padding = Padding(pad=int(prompting.tokenizer.pad_token_id))
    rows = sorted(prompting.examples(questions, limit), key=lambda row: row.length)
    rows = rows if place is None else rows[place.rank :: place.count]
    training = model.training
    model.eval()
    total, tokens = 0.0, 0.0
    try:
        with torch.no_grad(), autocast():
            for start in range(0, len(rows), batch_size):
                batch = padding(rows[start : start + batch_size])
                count = int(supervised(batch))
                total, tokens = total + float(compute(batch)) * count, tokens + count
    finally:
        model.train(training)
    if place is not None:
        total, tokens = place.total([total, tokens])
    return total / max(1, tokens)


def tokens_enough(examples: Sequence[Example], least: int = 0) -> int:
    """Tokens that the longest right answer needs, and some more: an answer that is cut off would be no answer."""
    return max(least, max(len(example.completion) for example in examples) + 8)


def in_words(found: Mapping[str, Any]) -> str:
    """The figures of an evaluation in a line."""
    return (
        f"accuracy {found['accuracy']:.3f}, answer rate {found['answer_rate']:.3f}, loss {found['loss']:.4f} "
        f"({found['questions']:,} questions)"
    )
