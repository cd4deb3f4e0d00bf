from __future__ import annotations

import math

import pytest

from stayfinite.recipes.chat.questions import found_in, is_right, number_in, parsed, score, wrapped


def test_what_is_wrapped_is_found_again() -> None:
    assert found_in(f"So it is {wrapped('12.5')}.") == "12.5"


def test_the_last_complete_pair_of_tags_counts() -> None:
    assert found_in("<answer>1</answer> no, <answer>2</answer> <answer>3") == "2"


@pytest.mark.parametrize("text", ["", "12", "<answer>12", "12</answer>", "<answer> </answer>", "<answer></answer>"])
def test_what_has_no_answer_in_tags_gives_none(text: str) -> None:
    assert found_in(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12.0), ("-3.5", -3.5), ("1,200", 1200.0), ("4e3", 4000.0), (".5", 0.5), ("1,234,567.8", 1234567.8)],
)
def test_numbers_are_read_as_people_write_them(text: str, number: float) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e999", "12 kg", "1,2", "--3", "e5", ".", "twelve", "1.2.3"])
def test_what_is_no_finite_number_is_none(text: str) -> None:
    assert number_in(text) is None


def test_a_number_is_right_within_five_per_cent() -> None:
    assert is_right("105", "100")
    assert is_right("95.01", "100")
    assert not is_right("105.1", "100")
    assert is_right("-0.0105", "-0.01")
    assert not is_right("0.01", "-0.01")
    assert is_right("0", "0")
    assert not is_right("0.001", "0")


def test_a_text_is_right_when_it_is_the_same() -> None:
    assert is_right(" Blue  whale", "blue whale")
    assert not is_right("blue", "blue whale")


def test_an_unreadable_answer_is_a_miss_and_never_zero() -> None:
    # The right answer is 0: were an unreadable one taken for 0.0, it would be right.
    found = score(["I do not know", "<answer>some</answer>", "<answer>0</answer>"], ["0", "0", "0"])
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.answer_rate == pytest.approx(1 / 3)


def test_a_word_is_no_answer_to_a_question_for_a_number() -> None:
    assert parsed("<answer>many</answer>", numeric=True) is None
    assert parsed("<answer>many</answer>", numeric=False) == "many"


def test_no_questions_give_no_score() -> None:
    found = score([], [])
    assert math.isnan(found.accuracy)
    assert found.questions == 0
