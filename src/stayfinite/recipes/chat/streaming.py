"""Stream questions larger than memory: a sample, and batches."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.chat.data import refuse_none
from stayfinite.recipes.chat.prompts import Example, Padding, Prompting, shared_batches
from stayfinite.recipes.chat.questions import Columns, Question, key_of, questions_in, read_questions, split
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.loading import HELD, PassedOver, Say, Streamed, TableReader, look

LONGEST = 100_000
"""Characters of a question that are tokenized: no limit of tokens leaves room for more, and the time grows with it."""
ENOUGH = 10_000
"""Questions of the sample that are tokenized before training."""
SPREAD = 16
"""Batches that are sorted together."""


class QuestionReader(TableReader[Question]):
    """The questions of a file."""

    def read(self, source: Source) -> Iterator[tuple[Question, int]]:
        passed = PassedOver(tell=self.tell)

        def refuse(error: UsageError) -> None:
            passed.row(error.message)

        for chunk in source.chunks():
            if chunk.lines:
                yield from ((question, chunk.done) for question in questions_in(chunk, self.columns, refuse))
            # After the rows before it, which are sound.
            for broken in chunk.broken:
                passed(chunk.path, broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPool:
    """Turns some questions into batches of rows of like length."""

    prompting: Prompting
    padding: Padding
    batch_size: int
    limit: int
    """Tokens in a row."""
    held: frozenset[bytes]
    """Of the questions that validate; they are never trained on."""
    tell: bool = True

    def __call__(self, rows: Sequence[Question], chance: random.Random) -> Iterator[Mapping[str, Tensor]]:
        asked = [question for question in rows if key_of(question.text) not in self.held]
        examples = fitting(self.prompting, asked, self.limit, PassedOver(tell=self.tell).row)
        seed = chance.getrandbits(62)
        order = shared_batches([row.length for row in examples], self.batch_size, seed=seed, spread=SPREAD)
        for batch in order:
            yield self.padding([examples[number] for number in batch])


def fitting(prompting: Prompting, questions: Sequence[Question], limit: int, tell: Say) -> list[Example]:
    """The questions as rows of training; those whose answer leaves no room for them are passed over, and told."""
    short = [replace(question, text=question.text[:LONGEST]) for question in questions]
    return prompting.examples(short, limit, refuse=lambda error: tell(error.message))


def sampled_examples(
    config: Any, prompting: Prompting, training: Sequence[Question], validation: Sequence[Question]
) -> list[Example]:
    """Some of the sample as rows of training, for the first batch and for how long an answer is.

    Raises:
        UsageError: not one of them fits, or a held-out question does not.
    """
    prompting.examples(validation, config.max_length)
    rows = fitting(prompting, training[:ENOUGH], config.max_length, lambda _: None)
    if not rows:
        prompting.examples(training[:1], config.max_length)  # says why
    return rows


def size_of(question: Question) -> int:
    """Characters of a question with its answer."""
    return len(question.text) + len(question.answer) + len(question.reasoning)


class StreamedQuestions(Streamed[Question]):
    """Files of questions read on demand."""

    def loader(self, config: Any, prompting: Prompting, place: Place, say: Say, *, batch_size: int) -> StreamLoader:
        """The batches of this process, of so many rows each."""
        make = QuestionPool(
            prompting=prompting, padding=Padding(
                pad=int(prompting.tokenizer.pad_token_id), multiple=8 if place.device.type == "cuda" else 1
            ), batch_size=batch_size,
            limit=config.max_length, held=frozenset(key_of(question.text) for question in self.validation),
            tell=place.first,
        )  # fmt: skip
        reader = QuestionReader(columns=Columns.of(config), tell=place.first)
        return self.loaded(config, reader, make, place, say, pool=batch_size * SPREAD)


def streamed_questions(config: Any, files: Sequence[Source], say: Say) -> StreamedQuestions:
    """Look at the files, without reading them all.

    Raises:
        UsageError: they hold no question.
        LoaderFailed: one is cut.
    """
    columns = Columns.of(config)
    sample: dict[bytes, Question] = {}
    read = QuestionReader(columns=columns, tell=False).read

    def keep(question: Question) -> None:
        sample.setdefault(key_of(question.text), question)

    found = look(files, read, keep, size=size_of)
    if config.val:
        validation = read_questions(config.val, columns, say)
        held = {key_of(question.text) for question in validation}
        training = [question for key, question in sample.items() if key not in held]
    else:
        training, kept_back = split(list(sample.values()), config.val_share)
        validation, training = kept_back[:HELD], training + kept_back[HELD:]
    refuse_none(training, validation)
    streamed = StreamedQuestions(
        files=files, training=training, validation=validation, characters=found.characters, size=size_of
    )
    streamed.introduce(config.train, f"{found.words}, {len(sample):,} questions", "questions", say)
    return streamed
