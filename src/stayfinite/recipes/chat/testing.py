"""``stayfinite sft test``: ask held-out questions, say how many answers were right and how many there were."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import torch
import tyro

from stayfinite.core.schema_names import tagged
from stayfinite.errors import UsageError
from stayfinite.recipes.chat.data import Task, conversions
from stayfinite.recipes.chat.evaluating import evaluate, in_words
from stayfinite.recipes.chat.questions import Columns, Question, answer_to, is_right, read_questions
from stayfinite.recipes.chat.using import Ready, Using, make_ready
from stayfinite.recipes.running.directories import require_writable
from stayfinite.recipes.running.logbook import Progress
from stayfinite.recipes.settings import read_settings, require


@dataclass(frozen=True, kw_only=True)
class Examine(Using):
    """Test on held-out questions. Without --data: those of the adapter's built-in task."""

    base: str | None = None
    """Base model; by default that of the adapter. Without an adapter, the model to test."""
    without_adapter: bool = False
    """Test the base alone, with the adapter's prompt."""
    data: tuple[str, ...] = ()
    """Files with questions and answers."""
    question: str | None = None
    """Question column."""
    answer: str | None = None
    """Answer column."""
    rows: int = 500
    """Most questions."""
    batch_size: int = 64
    """Questions per batch."""
    samples: int = 5
    """Answers to show."""
    output: Annotated[str | None, tyro.conf.arg(aliases=["-o", "--out"])] = None
    """Write every question and answer to this JSONL file."""
    json: bool = False
    """Print the result as JSON and nothing else."""


def examine(config: Examine, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Ask, and count."""
    require(config, at_least={1: ("rows", "batch_size", "new_tokens"), 0: ("samples",)})
    if config.output is not None:
        require_writable(config.output, "--output")
    given = read_questions(config.data, Columns(question=config.question, answer=config.answer)) if config.data else []
    ready = make_ready(config, config.base, without_adapter=config.without_adapter)
    questions = (given or _built_in(config, ready))[: config.rows]
    torch.manual_seed(0)
    found = evaluate(
        ready.model, ready.prompting, questions, new_tokens=ready.new_tokens, limit=ready.limit,
        batch_size=config.batch_size, samples=config.samples, say=say, progress=Progress(say, "questions asked"),
    )  # fmt: skip
    if config.output is not None:
        _write(Path(config.output), questions, found.texts)
    figures = found.to_json()
    if not figures["answer_rate"]:
        say(
            f"no answer could be parsed: the model does not use the tags, or {ready.new_tokens} tokens are too few "
            "(--new-tokens)"
        )
    say(in_words(figures))
    return figures


def main(arguments: Sequence[str]) -> None:
    """Run with these flags."""
    config = read_settings(Examine, arguments, "stayfinite sft test")
    figures = examine(config, (lambda _: None) if config.json else print)
    if config.json:
        sys.stdout.write(json.dumps(tagged("chat_test", figures), indent=1) + "\n")


def _built_in(config: Examine, ready: Ready) -> list[Question]:
    if ready.task not in ("metric", "units"):
        raise UsageError("no questions: it was not trained on a built-in task", fix="--data questions.jsonl")
    return conversions(cast(Task, ready.task), config.rows, held_out=True)


def _write(path: Path, questions: Sequence[Question], texts: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for question, text in zip(questions, texts, strict=True):
            given = answer_to(question.answer, text)
            row = {
                "question": question.text, "answer": question.answer, "said": text, "given": given,
                "right": is_right(given, question.answer),
            }  # fmt: skip
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
