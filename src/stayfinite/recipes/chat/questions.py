"""Questions with their answers: read from files, looked at row by row; answers in their tags, found and judged."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Chunk
from stayfinite.readers.data.opening import open_data, told
from stayfinite.readers.data.shapes import shape_of, sides
from stayfinite.recipes.running.directories import replacing

QUESTION_NAMES = ("question", "prompt", "instruction", "input", "query", "problem")
ANSWER_NAMES = ("answer", "response", "output", "completion", "target", "solution")
REASONING_NAMES = ("reasoning", "chain", "rationale", "thought")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, its answer, and, where there is one, the way to it."""

    text: str
    answer: str
    """A number as it is written, or a text."""
    reasoning: str = ""
    where: str = ""
    """`pairs.csv:17`, where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns; None to go by the usual ones."""

    question: str | None = None
    answer: str | None = None
    reasoning: str | None = None

    @classmethod
    def of(cls, config: Any) -> Columns:
        """As the settings of a program name them."""
        return cls(question=config.question, answer=config.answer, reasoning=config.reasoning)


def read_questions(
    paths: Sequence[str], columns: Columns, say: Callable[[str], None] = lambda _: None
) -> list[Question]:
    """The questions of data files; every row has a question and an answer.

    Rows may be tables with columns of their own, JSON lists of pairs, chats (`messages`, ShareGPT), Alpaca or
    preferences; ``say`` is told which they were.

    Raises:
        UsageError: a file or a column is missing, a row is broken or empty, or there is no row; with file and line.
    """
    found: list[Question] = []
    for source in open_data(paths):
        before, format_ = len(found), ""
        for chunk in source.chunks():
            for broken in chunk.broken:
                raise UsageError(f"{chunk.path}:{broken.line}: {broken.why}", fix="fix or remove the row")
            if chunk.lines:
                format_ = format_ or told(source, chunk.columns)
                found += questions_in(chunk, columns, raise_it)
        if format_:
            say(f"{source.path.name}: {format_}, {len(found) - before:,} rows")
    if not found:
        raise UsageError(f"{', '.join(map(str, paths))}: no rows", fix="one question and answer per row")
    return found


def raise_it(error: UsageError) -> None:
    """Refuse a row by ending with its error."""
    raise error


def split(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """Training and validation; which side a question is on depends on its text alone, so none is on both."""
    training: list[Question] = []
    validation: list[Question] = []
    for question in questions:
        (validation if drawn_for(question.text) < share else training).append(question)
    return training, validation


def key_of(text: str) -> bytes:
    """What tells a question from others, whatever its case and its spaces."""
    return hashlib.blake2b(" ".join(text.lower().split()).encode("utf-8", "replace"), digest_size=8).digest()


def drawn_for(text: str) -> float:
    """A number from 0 to below 1 that belongs to a text, whatever its case and its spaces."""
    return int.from_bytes(key_of(text), "big") / 2**64


def overlap(training: Iterable[Question], validation: Iterable[Question]) -> list[Question]:
    """Validation questions that are asked in training too."""
    asked = {key_of(question.text) for question in training}
    return [question for question in validation if key_of(question.text) in asked]


def write_questions(questions: Iterable[Question], path: Path) -> None:
    """Write them as JSON lines, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        for question in questions:
            row = {"question": question.text, "answer": question.answer}
            row |= {"reasoning": question.reasoning} if question.reasoning else {}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def questions_in(chunk: Chunk, columns: Columns, refuse: Callable[[UsageError], None]) -> Iterator[Question]:
    """The questions of some rows.

    Arguments:
        refuse: is given what is wrong with a row, which is then left out.

    Raises:
        UsageError: a column is missing.
    """
    names = list(chunk.columns)
    shape = None
    if columns.question is None and columns.answer is None and not _usual(names):
        shape = shape_of(chunk.columns)
    known: dict[int, str] = {}
    if shape is not None:
        asked, said, wrong = sides(shape, chunk.columns, chunk.lines)
        known = {broken.line: broken.why for broken in wrong}
        question, answer = shape.source[0], shape.target or "the last answer"
    else:
        question = _column(names, columns.question, QUESTION_NAMES, "question", chunk.path)
        answer = _column(names, columns.answer, ANSWER_NAMES, "answer", chunk.path)
        asked, said = chunk.columns[question], chunk.columns[answer]
    reasoning = _column(names, columns.reasoning, REASONING_NAMES, "reasoning", chunk.path, required=False)
    ways = chunk.columns[reasoning] if reasoning else [None] * len(chunk.lines)
    for line, one, two, way in zip(chunk.lines, asked, said, ways, strict=True):
        where = f"{chunk.path}:{line}"
        try:
            if line in known:
                raise UsageError(f"{where}: {known[line]}", fix="repair or remove that row")
            yield Question(
                text=_text(one, where, question), answer=_answer(two, where, answer), where=where,
                reasoning="" if way is None else str(way).strip(),
            )  # fmt: skip
        except UsageError as error:
            refuse(error)


def _usual(names: Sequence[str]) -> bool:
    """Whether the rows are questions and answers by name; then an `input` beside an `instruction` is not left out."""
    lower = {name.lower() for name in names}
    return "question" in lower and bool(lower.intersection(ANSWER_NAMES))


def _column(
    names: Sequence[str], asked: str | None, usual: Sequence[str], what: str, path: Path, *, required: bool = True
) -> str:
    """The column that was asked for, or one with a usual name; empty where it is missing and not required."""
    if asked is not None:
        if asked not in names:
            raise UsageError(f"{path} has no column {asked!r}", fix=f"it has {', '.join(names)}: --{what} NAME")
        return asked
    lower = {name.lower(): name for name in reversed(names)}
    found = next((lower[name] for name in usual if name in lower), "")
    if found or not required:
        return found
    raise UsageError(
        f"{path} has no column for the {what}: it has {', '.join(names)}",
        fix=f"--{what} NAME, or call it {usual[0]!r}; the first row of a table holds the names",
    )


def _answer(value: Any, where: str, column: str) -> str:
    """An answer as text; tags that it has on already are taken off, as it gets them in training."""
    text = bare(_text(value, where, column))
    if not text or OPEN in text or CLOSE in text:
        raise UsageError(
            f"{where}: {column} contains answer tags ({text[:60]!r})",
            fix=f"put only the answer there, or one pair of {OPEN}{CLOSE}; reasoning goes into the column `reasoning`",
        )
    return text


def _text(value: Any, where: str, column: str) -> str:
    """A value as text; numbers as they are written, and yes and no as JSON has them."""
    if value is None:
        text = ""
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"{where}: {column} is {value}", fix="fix or remove the row")
        text = f"{value:.12g}"
    elif isinstance(value, str | int):
        text = str(value).strip()
    else:
        raise UsageError(
            f"{where}: {column} is a {type(value).__name__}, not text or a number", fix=("one value per row")
        )
    if not text:
        raise UsageError(f"{where}: {column} is empty", fix="fix or remove the row")
    return text


OPEN, CLOSE = "<answer>", "</answer>"
TOLERANCE = 0.05
"""A number counts as right within this relative error."""
_TAGGED = re.compile(re.escape(OPEN) + r"(.*?)" + re.escape(CLOSE), re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


def wrapped(answer: str) -> str:
    """The answer in its tags."""
    return f"{OPEN}{answer}{CLOSE}"


def bare(answer: str) -> str:
    """An answer without the tags that it may have been given already."""
    whole = _TAGGED.fullmatch(answer.strip())
    return whole[1].strip() if whole else answer


def found_in(text: str) -> str | None:
    """What stands in the last complete pair of tags; None where there is none, or nothing in it."""
    tagged = _TAGGED.findall(text)
    inside = str(tagged[-1]).strip() if tagged else ""
    return inside or None


def number_in(text: str) -> float | None:
    """The number that a text is: `1,200`, `-3.5`, `4e3`; None where it is none, or not finite."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        return None
    value = float(stripped.replace(",", ""))
    return value if math.isfinite(value) else None


def parsed(text: str, *, numeric: bool) -> str | None:
    """The answer that a generated text gives: in its tags, and a number where one is asked for."""
    inside = found_in(text)
    if inside is None or (numeric and number_in(inside) is None):
        return None
    return inside


def answer_to(right: str, text: str) -> str | None:
    """The answer that a generated text gives to a question whose right answer this is."""
    return parsed(text, numeric=number_in(right) is not None)


def is_right(given: str | None, right: str) -> bool:
    """Within the tolerance for numbers, equal but for spaces and case for texts; no answer is never right."""
    if given is None:
        return False
    expected = number_in(right)
    if expected is None:
        return " ".join(given.casefold().split()) == " ".join(right.casefold().split())
    value = number_in(given)
    return value is not None and abs(value - expected) <= (TOLERANCE + 1e-9) * abs(expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How many answers were right, and how many there were."""

    accuracy: float
    """Share of the questions that were answered rightly; one without an answer is a miss."""
    answer_rate: float
    """Share of the questions with an answer that can be read."""
    questions: int


def score(texts: Sequence[str], rights: Sequence[str]) -> Scores:
    """Hold generated texts against the right answers."""
    given = [answer_to(right, text) for text, right in zip(texts, rights, strict=True)]
    correct, answered = map(is_right, given, rights), (one is not None for one in given)
    accuracy, rate = (sum(each) / len(rights) if rights else math.nan for each in (correct, answered))
    return Scores(accuracy=accuracy, answer_rate=rate, questions=len(rights))
