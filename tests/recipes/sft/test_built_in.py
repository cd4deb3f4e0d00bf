from __future__ import annotations

import re
from typing import Any

import pytest

from stayfinite.recipes.chat.data import METRIC, UNITS, WORDINGS, conversions, is_held_out, plain

TASKS: Any = pytest.mark.parametrize("task", ["metric", "units"])
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@TASKS
def test_held_out_questions_share_neither_text_nor_number_with_training(task: Any) -> None:
    training = conversions(task, 2000, held_out=False)
    held_out = conversions(task, 400, held_out=True)
    assert (len(training), len(held_out)) == (2000, 400)
    assert not {question.text for question in training} & {question.text for question in held_out}
    numbers, others = (
        {number.replace(".", "").strip("0") for question in questions for number in NUMBER.findall(question.text)}
        for questions in (training, held_out)
    )
    assert not numbers & others


@TASKS
def test_the_same_seed_asks_the_same_questions(task: Any) -> None:
    assert conversions(task, 50, held_out=False) == conversions(task, 50, held_out=False)
    assert conversions(task, 50, held_out=False) != conversions(task, 50, held_out=False, seed=1)


@TASKS
def test_every_answer_is_the_conversion_that_is_asked_for(task: Any) -> None:
    tables = {
        unit: factor for units in (UNITS if task == "units" else METRIC).values() for unit, factor in units.items()
    }
    forms = [re.compile(re.escape(wording).replace(r"\{", "(?P<").replace(r"\}", ">.+?)")) for wording in WORDINGS]
    for question in conversions(task, 500, held_out=False):
        asked = next(match for form in forms if (match := form.fullmatch(question.text)))
        number, of, to = float(asked["number"]), asked["of"], asked["to"]
        if of == "degrees Celsius":
            expected = number * 9 / 5 + 32
        elif of == "degrees Fahrenheit":
            expected = (number - 32) * 5 / 9
        else:
            expected = number * tables[of] / tables[to]
        assert float(question.answer) == pytest.approx(expected, rel=6e-3), question


def test_the_way_that_is_shown_adds_up_to_the_answer() -> None:
    for question in conversions("units", 500, held_out=False):
        steps = question.reasoning.removesuffix(":").split(", ")
        parts = [float(step.rpartition(" ")[2]) for step in steps]
        # What is left over is what rounding takes from each part.
        assert abs(sum(parts) - float(question.answer)) <= 0.01 * max(map(abs, parts)), question
        asked = float(NUMBER.findall(question.text)[0])
        given = [float(step.partition(" is ")[0]) for step in steps if " is " in step]
        assert sum(given) == pytest.approx(asked)
        assert all(len(plain(part).replace(".", "").strip("0")) == 1 for part in given)


def test_a_model_that_is_built_here_answers_at_once() -> None:
    assert {question.reasoning for question in conversions("metric", 50, held_out=False)} == {""}


def test_digits_decide_wherever_the_point_is() -> None:
    assert len({is_held_out(number) for number in ("4.7", "47", "470", "0.047")}) == 1


def test_numbers_are_written_without_exponents_or_idle_zeros() -> None:
    assert [plain(number) for number in (12.0, 0.001234567, 1749000.4, 3.10, -17.77777)] == [
        "12", "0.00123", "1750000", "3.1", "-17.8",
    ]  # fmt: skip
