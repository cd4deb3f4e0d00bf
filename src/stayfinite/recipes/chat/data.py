"""The questions of a run, as its settings ask for them, and their rows of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.bases import is_size
from stayfinite.recipes.chat.built_in import Task, conversions
from stayfinite.recipes.chat.prompts import Example, Prompting
from stayfinite.recipes.chat.questions import Columns, Question, overlap, read_questions, split


def questions_of(config: Any, say: Callable[[str], None]) -> tuple[list[Question], list[Question]]:
    """Questions to train on and to evaluate with: read, split, or built in.

    Raises:
        UsageError: a file or column is missing, a row is broken, or nothing is left on one side.
    """
    columns = Columns.of(config)
    if not config.train:
        training = conversions(task_of(config), config.rows, held_out=False, seed=config.seed)
        validation = conversions(task_of(config), config.held_out, held_out=True, seed=config.seed)
    elif config.val:
        training, validation = read_questions(config.train, columns, say), read_questions(config.val, columns, say)
    else:
        training, validation = split(read_questions(config.train, columns, say), config.val_share)
    refuse_none(training, validation)
    say(f"{len(training):,} questions to train on, {len(validation):,} held out")
    if twice := overlap(training, validation):
        say(f"warning: {len(twice):,} held-out questions are in the training data: {twice[0].text[:80]!r}")
    return training, validation


def refuse_none(training: Sequence[Question], validation: Sequence[Question]) -> None:
    """Look whether there are questions on both sides.

    Raises:
        UsageError: nothing is left on one side.
    """
    for name, found in (("train on", training), ("evaluate with", validation)):
        if not found:
            raise UsageError(f"no question is left to {name}", fix="more rows, another --val-share, or --val FILE")


def task_of(config: Any) -> Task:
    """The built-in task: as asked for, or the one that a model of this size can learn."""
    if config.task != "auto":
        return cast(Task, config.task)
    return "metric" if is_size(config.model) else "units"


def examples_of(
    config: Any,
    prompting: Prompting,
    questions: Sequence[Question],
    say: Callable[[str], None],
    held_out: Sequence[Question] = (),
) -> list[Example]:
    """The questions as rows of training; says how many had to be cut.

    Raises:
        UsageError: a row does not fit, held-out ones included: now, and not after an epoch.
    """
    prompting.examples(held_out, config.max_length)
    examples = prompting.examples(questions, config.max_length)
    cut = sum(example.cut for example in examples)
    if cut:
        say(
            f"{cut:,} questions ({cut / len(examples):.1%}) are truncated to --max-length {config.max_length}; "
            "answers are not"
        )
    return examples
