from __future__ import annotations

import random

import pytest

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.bases import train_tokenizer
from stayfinite.recipes.chat.prompts import IGNORED, Padding, Prompting, decoded, supervised
from stayfinite.recipes.chat.questions import Question, found_in

TEXTS = ["How many m are 3 km?", "Convert 47 mm to cm.", "How many kg are 5 g?"]


@pytest.fixture(scope="module")
def prompting() -> Prompting:
    return Prompting(tokenizer=train_tokenizer(TEXTS), system="Answer.")


def test_a_row_of_training_begins_with_the_very_prompt_of_inference(prompting: Prompting) -> None:
    question = Question(text="Convert 47 mm to cm.", answer="4.7")
    (row,) = prompting.examples([question], 128)
    assert row.prompt == prompting.prompt(question.text)
    assert not row.cut


def test_only_the_answer_and_the_end_mark_are_supervised(prompting: Prompting) -> None:
    question = Question(text="Convert 47 mm to cm.", answer="4.7")
    batch = Padding(pad=prompting.tokenizer.pad_token_id)(prompting.examples([question], 128))
    learned = [label for label in batch["labels"][0].tolist() if label != IGNORED]
    assert prompting.tokenizer.decode(learned) == "<answer>4.7</answer><|im_end|>"
    assert int(supervised(batch)) == len(learned)


def test_the_end_mark_is_learned_where_it_is_also_what_pads(prompting: Prompting) -> None:
    questions = [Question(text="How many m are 3 km?", answer="3000"), Question(text="Convert 4.", answer="1")]
    rows = prompting.examples(questions, 128)
    batch = Padding(pad=prompting.end)(rows)
    for row, labels in zip(rows, batch["labels"], strict=True):
        assert int(labels[row.length - 1]) == prompting.end
        assert bool((labels[row.length :] == IGNORED).all())


def test_the_way_to_the_answer_is_learned_too(prompting: Prompting) -> None:
    question = Question(text="How many m are 3 km?", answer="3000", reasoning="A km has 1000 m.")
    said = prompting.tokenizer.decode(prompting.completion(question))
    assert said == "A km has 1000 m. <answer>3000</answer><|im_end|>"


def test_a_long_question_is_cut_and_its_answer_never(prompting: Prompting) -> None:
    question = Question(text="Please convert, " * 50 + "3 km to m.", answer="3000")
    (row,) = prompting.examples([question], 48)
    assert row.cut
    assert row.length <= 48
    assert row.completion == prompting.completion(question)
    # The frame stays whole: system, user, and where the assistant begins.
    words = prompting.tokenizer.decode(row.prompt)
    assert words.startswith("<|im_start|>system\nAnswer.")
    assert words.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert "Please convert" in words


def test_no_row_of_any_length_is_wholly_masked(prompting: Prompting) -> None:
    chance = random.Random(0)
    for _ in range(40):
        question = Question(text="x y z " * chance.randrange(1, 60), answer="1" * chance.randrange(1, 9))
        rows = prompting.examples([question], chance.randrange(40, 96))
        batch = Padding(pad=prompting.end)(rows)
        assert int(supervised(batch)) == len(rows[0].completion)


def test_an_answer_that_cannot_fit_is_an_error_with_its_row(prompting: Prompting) -> None:
    question = Question(text="Why?", answer="because " * 40, where="pairs.csv:17")
    needed = len(prompting.completion(question))
    # Even where the answer fits: the frame without a question would be all that is left.
    for limit in (32, needed + 4):
        with pytest.raises(
            UsageError, match=rf"pairs.csv:17: its answer of {needed} tokens.*--max-length {limit}"
        ) as caught:
            prompting.examples([question], limit)
        assert "--max-length" in caught.value.fix


def test_a_question_of_which_nothing_fits_is_an_error_and_not_an_empty_question(prompting: Prompting) -> None:
    frame = len(prompting.prompt(""))
    with pytest.raises(UsageError, match=f"no room for the question: {frame} tokens") as caught:
        prompting.prompt("Convert 47 mm to cm.", frame)
    assert "--max-length" in caught.value.fix
    assert "Convert" in prompting.tokenizer.decode(prompting.prompt("Convert 47 mm to cm.", frame + 6))


def test_the_tags_survive_tokenizing(prompting: Prompting) -> None:
    ids = prompting.completion(Question(text="", answer="-3.5"))
    assert found_in(prompting.tokenizer.decode(ids, skip_special_tokens=True)) == "-3.5"


def test_a_tokenizer_without_a_chat_template_gets_a_plain_frame(prompting: Prompting) -> None:
    bare = train_tokenizer(TEXTS)
    bare.chat_template = None
    plain = Prompting(tokenizer=bare)
    (row,) = plain.examples([Question(text="2 + 2?", answer="4")], 64)
    assert bare.decode(row.prompt) == "<|im_start|>Question: 2 + 2?\nAnswer: "
    assert row.prompt == plain.prompt("2 + 2?")


def test_a_row_in_words_shows_what_is_learned(prompting: Prompting) -> None:
    (row,) = prompting.examples([Question(text="2 + 2?", answer="4")], 64)
    labels = [IGNORED] * len(row.prompt) + row.completion
    words = decoded(prompting.tokenizer, row.prompt + row.completion, labels)
    assert words.partition(" -> ")[2] == "<answer>4</answer><|im_end|>"
    assert "2 + 2?" in words.partition(" -> ")[0]
