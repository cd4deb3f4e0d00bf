"""``diagnose --ask``: ask the most informative question in the terminal, until none matters."""

import sys
from collections.abc import Sequence

from stayfinite.diagnosis.asking import Question, next_question
from stayfinite.diagnosis.diagnose import context_of, judge_reading
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.diagnosis.reading import Reading
from stayfinite.diagnosis.telling import understand_told
from stayfinite.errors import UsageError

MOST_QUESTIONS = 4


def interview(reading: Reading, told: Sequence[str]) -> list[str]:
    """Ask, and return all facts as `name=value`. An empty answer means unknown."""
    known, asked = list(told), [pair.partition("=")[0] for pair in told]
    for _ in range(MOST_QUESTIONS):
        question = _next(reading, known, asked)
        if question is None:
            break
        asked.append(question.name)
        answer = _ask(question)
        while answer and (wrong := _not_understood(f"{question.name}={answer}")):
            print(f"{wrong}. Please answer again.", file=sys.stderr)
            answer = _ask(question)
        if answer:
            known.append(f"{question.name}={answer}")
    return known


def _next(reading: Reading, known: list[str], asked: list[str]) -> Question | None:
    def judged_with(pair: str) -> Diagnosis:
        return judge_reading(reading, understand_told([*known, pair]))

    found = judge_reading(reading, understand_told(known))
    question = next_question(context_of(reading, understand_told(known)), asked, judged_with)
    if question is None and found.differential is not None and found.differential.experiment.key not in asked:
        experiment = found.differential.experiment
        text = f"Did you try this: {experiment.do}? fine: {experiment.fine}. bad: {experiment.bad}."
        return Question(name=experiment.key, text=text, answers=("fine", "bad"))
    return question


def _not_understood(pair: str) -> str:
    """What is wrong with an answer; empty if it is understood."""
    try:
        understand_told([pair])
    except UsageError as error:
        return error.message
    return ""


def _ask(question: Question) -> str:
    print(f"{question.text} [{' / '.join(question.answers)}, Enter: don't know] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
