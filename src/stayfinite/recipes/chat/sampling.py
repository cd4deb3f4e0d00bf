"""``stayfinite sft datagen``: sample several ways to each answer, keep those that end rightly, to be trained on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.data import Task, conversions
from stayfinite.recipes.chat.evaluating import generate
from stayfinite.recipes.chat.questions import (
    OPEN,
    Columns,
    Question,
    answer_to,
    is_right,
    read_questions,
    write_questions,
)
from stayfinite.recipes.chat.using import Using, make_ready
from stayfinite.recipes.running.directories import require_writable
from stayfinite.recipes.settings import read_settings, require

SYSTEM = "Think step by step in a few words. Then put the answer between tags, like this: <answer>12.5</answer>"


@dataclass(frozen=True, kw_only=True)
class Datagen(Using):
    """Rejection sampling: ask each question several times, keep solutions with the correct answer. Train on them with
    `sft train --train FILE`.
    """

    output: Annotated[str, tyro.conf.arg(aliases=["-o", "--out"])] = "data/sampled.jsonl"
    """Output file: question, answer, reasoning."""
    model: str | None = None
    """Model to sample from: as --model of `sft train`."""
    adapter: str | None = None
    """Run of `sft train` or its adapter; --model is then its base by default."""
    data: tuple[str, ...] = ()
    """Files with questions and answers; by default built-in training questions."""
    question: str | None = None
    """Question column."""
    answer: str | None = None
    """Answer column."""
    task: Task = "units"
    """Built-in questions, without --data."""
    rows: int = 1000
    """Most questions."""
    samples: int = 8
    """Samples per question."""
    keep: int = 1
    """Most different correct solutions to keep per question, shortest first."""
    temperature: float = 0.8
    """Sampling temperature, above 0."""
    new_tokens: int = 128
    """Most tokens per sample."""
    system: str = SYSTEM
    """System text before every question."""
    batch_size: int = 16
    """Questions per batch."""
    seed: int = 0
    """Seed for sampling."""


def datagen(config: Datagen, say: Callable[[str], None] = print) -> list[Question]:
    """Sample, keep what is right, write it."""
    # At a temperature of 0 every sample would be the same.
    require(config, above_zero=("temperature",), at_least={1: ("rows", "samples", "keep", "new_tokens", "batch_size")})
    require_writable(config.output, "--output")
    if config.data:
        questions = read_questions(config.data, Columns(question=config.question, answer=config.answer))
    else:
        questions = conversions(config.task, config.rows, held_out=False, seed=config.seed)
    questions = questions[: config.rows]
    ready = make_ready(config, config.model)
    torch.manual_seed(config.seed)
    texts = generate(
        ready.model, ready.prompting, [question.text for question in questions], new_tokens=config.new_tokens,
        samples=config.samples, temperature=config.temperature, batch_size=config.batch_size,
    )  # fmt: skip
    kept: list[Question] = []
    solved = right = 0
    for number, question in enumerate(questions):
        ways = texts[number * config.samples : (number + 1) * config.samples]
        good = right_ways(question, ways)
        right += sum(is_right(answer_to(question.answer, text), question.answer) for text in ways)
        solved += bool(good)
        kept += good[: config.keep]
    say(
        f"{right:,} of {len(texts):,} samples are correct; {solved:,} of {len(questions):,} questions solved, "
        f"{len(kept):,} rows kept"
    )
    if not kept:
        raise UsageError(
            "no correct sample: nothing written",
            fix="a stronger --model, an --adapter, more --samples, or more --new-tokens",
        )
    write_questions(kept, Path(config.output))
    say(f"saved to {config.output}: stayfinite sft train --train {config.output}")
    return kept


def right_ways(question: Question, texts: Sequence[str]) -> list[Question]:
    """The different texts that end at the right answer, as rows of training, the shortest first.

    The answer that is trained on is the right one, not the model's, which may be a few per cent off.
    """
    good = (text for text in texts if is_right(answer_to(question.answer, text), question.answer))
    ways = {text.rpartition(OPEN)[0].strip() for text in good}
    # One that had answered before its last answer would teach to answer twice.
    once = sorted((way for way in ways if OPEN not in way), key=lambda way: (len(way), way))
    return [replace(question, reasoning=way) for way in once]


def main(arguments: Sequence[str]) -> None:
    """Run with these flags."""
    datagen(read_settings(Datagen, arguments, "stayfinite sft datagen"))
