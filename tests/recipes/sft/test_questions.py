from __future__ import annotations

import json
from pathlib import Path

import pytest

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.questions import Columns, Question, overlap, read_questions, split, write_questions


def test_csv_json_and_jsonl_say_the_same(tmp_path: Path) -> None:
    rows = [{"question": "2+2?", "answer": 4}, {"question": "Sky?", "answer": "blue"}]
    (tmp_path / "a.csv").write_text("question,answer\n2+2?,4\nSky?,blue\n")
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.csv", "a.json", "a.jsonl"):
        found = read_questions([str(tmp_path / name)], Columns())
        assert [(each.text, each.answer) for each in found] == [("2+2?", "4"), ("Sky?", "blue")], name


def test_numbers_come_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"q": "a", "a": 0.1}\n{"q": "b", "a": 2500000.0}\n{"q": "c", "a": "1e3"}\n')
    found = read_questions([str(tmp_path / "a.jsonl")], Columns(question="q", answer="a"))
    assert [each.answer for each in found] == ["0.1", "2500000", "1e3"]


def test_yes_and_no_are_answers_as_json_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "x", "answer": true}\n{"question": "y", "answer": false}\n')
    assert [each.answer for each in read_questions([str(tmp_path / "a.jsonl")], Columns())] == ["true", "false"]


def test_an_answer_that_has_its_tags_on_already_does_not_get_them_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\nx,<answer> 12 </answer>\ny,a < b\n")
    assert [each.answer for each in read_questions([str(tmp_path / "a.csv")], Columns())] == ["12", "a < b"]


@pytest.mark.parametrize(
    "answer",
    ["so it is <answer>12</answer>", "12</answer>", "<answer>1</answer><answer>2</answer>", "<answer></answer>"],
)
def test_an_answer_that_could_not_be_found_between_its_tags_is_an_error_with_its_line(
    tmp_path: Path, answer: str
) -> None:
    (tmp_path / "a.csv").write_text(f"question,answer\nx,1\ny,{answer}\n")
    with pytest.raises(UsageError, match=r"a.csv:3: answer contains answer tags"):
        read_questions([str(tmp_path / "a.csv")], Columns())


def test_a_missing_column_is_named_with_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("frage,antwort\nx,y\n")
    with pytest.raises(UsageError, match="no column for the question: it has frage, antwort"):
        read_questions([str(tmp_path / "a.csv")], Columns())
    with pytest.raises(UsageError, match="no column 'fragen'"):
        read_questions([str(tmp_path / "a.csv")], Columns(question="fragen", answer="antwort"))
    found = read_questions([str(tmp_path / "a.csv")], Columns(question="frage", answer="antwort"))
    assert found[0].text == "x"


@pytest.mark.parametrize(
    "row", ['{"question": "x", "answer": ""}', '{"question": "x"}', '{"question": " ", "answer": 1}']
)
def test_an_empty_field_is_an_error_with_its_line(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "x", "answer": 1}\n' + row + "\n")
    with pytest.raises(UsageError, match=r"a.jsonl:2: (question|answer) is empty"):
        read_questions([str(tmp_path / "a.jsonl")], Columns())


@pytest.mark.parametrize("row", ['{"question": "y", "answer": NaN}', '{"question": "y", "ans'])
def test_a_number_that_is_not_finite_and_a_row_that_is_no_json_are_errors_with_their_line(
    tmp_path: Path, row: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "x", "answer": 1}\n' + row + "\n")
    with pytest.raises(UsageError, match="a.jsonl:2"):
        read_questions([str(tmp_path / "a.jsonl")], Columns())


@pytest.mark.parametrize("text", ["", "question,answer\n"])
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UsageError, match="no rows"):
        read_questions([str(tmp_path / "a.csv")], Columns())


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match="no such file: nowhere.csv"):
        read_questions(["nowhere.csv"], Columns())


def test_a_question_is_never_on_both_sides() -> None:
    questions = [Question(text=f"What is {number}?", answer="1") for number in range(200)]
    again = [Question(text=f"what  is {number}?", answer="2") for number in range(200)]
    training, validation = split([*questions, *again], 0.2)
    assert not overlap(training, validation)
    assert 40 < len(validation) < 120


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    questions = [Question(text="ä?", answer="1", reasoning="so"), Question(text="b", answer="x")]
    write_questions(questions, tmp_path / "new" / "a.jsonl")
    found = read_questions([str(tmp_path / "new" / "a.jsonl")], Columns())
    assert [(each.text, each.answer, each.reasoning) for each in found] == [("ä?", "1", "so"), ("b", "x", "")]
