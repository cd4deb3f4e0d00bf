"""Courses as tutorials publish them, that once gave a false alarm, each with a sick look-alike."""

from __future__ import annotations

import pytest

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text

BAR = "75/75 [==============================] - 15s 194ms/step"


def verdict(lines: list[str]) -> str:
    return judge_reading(read_text("\n".join(lines) + "\n")).verdict


def accuracies(last: str) -> list[str]:
    told = ["10.0", "33.333335876464844", "86.66667175292969", last]
    return [f"Epoch: {n}\nLoss: {4 - n / 2}\nTraining accuracy: {each}" for n, each in enumerate(told)]


def trainings(second: str) -> list[str]:
    """Two models, one after the other in one notebook."""
    lines = []
    for level, starts in ((0.1, "1"), (6000.0, second)):
        for n in range(5):
            lines += [f"Epoch {int(starts) + n}/9", f"{BAR} - loss: {level * (1 - n / 20):.4f}"]
    return lines


def variational(kl: str) -> list[str]:
    return [
        f"Epoch {n}/9\n{BAR} - gen_loss: {110 - n}.5 - {kl}: 83.{8 + n % 2} - vgg_loss: {16 - n / 9:.3f}"
        for n in range(1, 9)
    ]


def top_five(name: str) -> list[str]:
    course = [
        f"Epoch {n}/9\n{BAR} - accuracy: 0.{50 + n} - loss: {2 - n / 9:.3f} - val_accuracy: 0.{48 + n}"
        for n in range(1, 9)
    ]
    return [*course, "Test accuracy: 57.1%", f"{name}: 98.42%"]


WARNED = (
    "conv.py:456: UserWarning: Plan failed with a cudnnException: cudnn_status: CUDNN_STATUS_NOT_SUPPORTED",
    "  return F.conv2d(input, weight, bias, self.stride,",
    "{'eval_loss': 9.745, 'eval_map': 0.4751, 'eval_map_50': 0.7251, 'epoch': 10.0}",
)


@pytest.mark.parametrize(
    ("healthy", "sick"),
    [
        (accuracies("100.00000762939453"), accuracies("104.16666793823242")),
        (trainings("1"), trainings("6")),
        (list(WARNED), ["RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", *WARNED[1:2]]),
    ],
    ids=["an accuracy of 100 % in 32-bit floats", "another model, trained afterwards", "a warning of cuDNN"],
)
def test_a_healthy_course_gives_no_alarm_and_its_sick_look_alike_does(healthy: list[str], sick: list[str]) -> None:
    assert verdict(healthy) != "sick"
    assert verdict(sick) == "sick"


@pytest.mark.parametrize(
    "healthy",
    [
        variational("kl_loss"),
        top_five("Test top 5 accuracy"),
        [
            "WARNING:tensorflow:The parameters `use_cache` cannot be updated when calling a model.",
            *(
                f"459/459 [=====] - 49s 81ms/step - loss: {0.7 - n / 9:.4f} - val_loss: {0.72 - n / 9:.4f}"
                for n in range(4)
            ),
        ],
        [
            "Prediction: the an an an an an an an an an an an house",
            *(
                f"Prediction: {each}"
                for each in ("a green house", "two boats", "no idea", "the old sea", "her hat", "rain")
            ),
            *(f"epoch {n} loss {2 - n / 9:.3f}" for n in range(9)),
        ],
    ],
    ids=[
        "a KL term of a variational model",
        "accuracy among the first five",
        "arguments of a call",
        "answers that improve",
    ],
)
def test_a_healthy_course_gives_no_alarm(healthy: list[str]) -> None:
    assert verdict(healthy) != "sick"
