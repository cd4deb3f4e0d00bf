"""Numbers that somebody tells of a run are judged as those of a log."""

import pytest

from stayfinite import diagnose
from stayfinite.rules.told_courses import told_courses


def kinds(tmp_path, text):
    post = tmp_path / "post.txt"
    post.write_text(text + "\n", encoding="utf-8")
    return diagnose(post).verdict


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("My loss: 0.9, 0.5, 3.1 and then 480", "loss", [0.9, 0.5, 3.1, 480]),
        ("the val bleu is 8.91, 8.91, 8.91", "val_bleu", [8.91, 8.91, 8.91]),
        ("kl goes 0.02 -> 0.3 -> 7.2", "kl", [0.02, 0.3, 7.2]),
        ("31.2 -> 55.4 -> 74.1 loss", "loss", [31.2, 55.4, 74.1]),
        ("Verlust steigt von 0,48 auf 0,69 auf 4,3", "verlust", [0.48, 0.69, 4.3]),
    ],
)
def test_a_course_in_a_sentence_has_a_name_and_numbers(text, name, values):
    (course,) = told_courses(text)
    assert course.name.endswith(name)
    assert course.values == values


@pytest.mark.parametrize(
    "text", ["milestones of the loss weight: epochs 30, 60, 90", "x has shape [64, 50, 128]", "lr 1e-3, 1e-4, 1e-5"]
)
def test_settings_and_shapes_are_no_courses(text):
    assert not list(told_courses(text))


@pytest.mark.parametrize(
    "text",
    [
        "My autoencoder does this. Loss: 0.9, 0.5, 0.7, 3.1, 22, 480, 1.1e5 and then inf.",
        "T5 summarization, log says loss 2.4, 2.2, 3.9, 7.6, 9.8, 10.2 (steps 100..600).",
        "GRPO with beta 0: kl 0.02 -> 0.3 -> 1.6 -> 7.2 -> 31.",
        "SGD on fp16 weights: loss per epoch 0.6904 0.6904 0.6904 0.6904.",
        "Pong, reward 4.1, 14.2, 18.0, 2.2, -20.7 by the million steps.",
        "Works with d_model=64, with 512 nan comes after about 200 steps.",
        "The swa model is worse: test acc 1.0% vs 71.9% of the plain one.",
    ],
)
def test_who_tells_of_trouble_in_numbers_is_believed(tmp_path, text):
    assert kinds(tmp_path, text) == "sick"


@pytest.mark.parametrize(
    "text",
    [
        "My loss goes 1.21, 0.88, 0.74, 0.69. Is that a usual speed?",
        "Reproduced: AP 36.5 (paper 35.7), three seeds 36.4, 36.5, 36.6.",
        "GRPO, kl 0.01 -> 0.04 -> 0.06 -> 0.06, reward 0.31, 0.44, 0.52, 0.58. Should I go on?",
        "Does TerminateOnNaN check every batch? Nothing is nan at the moment.",
        "Accuracy 0.97, 0.97, 0.97 for the last three epochs, so I stop here.",
    ],
)
def test_good_courses_and_questions_alarm_nobody(tmp_path, text):
    assert kinds(tmp_path, text) != "sick"
